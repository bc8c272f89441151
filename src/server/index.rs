//! The names of the live queues, and when each of them wants to be looked at.
//!
//! An entry means "there may be a queue of this name": the keyspace has the last word, and whoever
//! opens a key that is no queue takes the entry out. So a missed event heals by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Names by database.
#[derive(Debug, Default)]
pub struct Index {
    dbs: BTreeMap<i32, Db>,
    /// Number of the next name.
    next: u64,
}

#[derive(Debug, Default)]
struct Db {
    names: HashMap<Rc<[u8]>, Entry>,
    /// By number, which is the order in which listings go.
    order: BTreeMap<u64, Rc<[u8]>>,
    /// When each wants to be looked at, boot clock, ms. Not those that never do.
    due: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    due: u64,
}

impl Index {
    /// Notes a name, or when it is to be looked at (boot clock, ms; `u64::MAX`: never).
    pub fn set(&mut self, db: i32, name: &[u8], due: u64) {
        let db = self.dbs.entry(db).or_default();
        let number = if let Some(entry) = db.names.get_mut(name) {
            db.due.remove(&(entry.due, entry.number));
            entry.due = due;
            entry.number
        } else {
            self.next = self.next.saturating_add(1);
            let name: Rc<[u8]> = name.into();
            db.order.insert(self.next, Rc::clone(&name));
            db.names.insert(name, Entry { number: self.next, due });
            self.next
        };
        if due != u64::MAX {
            db.due.insert((due, number));
        }
    }

    /// Takes a name out.
    pub fn remove(&mut self, db: i32, name: &[u8]) {
        let Some(in_db) = self.dbs.get_mut(&db) else { return };
        if let Some(entry) = in_db.names.remove(name) {
            in_db.order.remove(&entry.number);
            in_db.due.remove(&(entry.due, entry.number));
        }
        if in_db.names.is_empty() {
            self.dbs.remove(&db);
        }
    }

    /// Takes out all names, or those of one database.
    pub fn clear(&mut self, db: Option<i32>) {
        match db {
            Some(db) => {
                self.dbs.remove(&db);
            }
            None => self.dbs.clear(),
        }
    }

    /// Two databases changed places.
    pub fn swap(&mut self, first: i32, second: i32) {
        let (one, two) = (self.dbs.remove(&first), self.dbs.remove(&second));
        if let Some(one) = one {
            self.dbs.insert(second, one);
        }
        if let Some(two) = two {
            self.dbs.insert(first, two);
        }
    }

    /// Everything is to be looked at.
    pub fn all_due(&mut self) {
        for db in self.dbs.values_mut() {
            db.due.clear();
            for entry in db.names.values_mut() {
                entry.due = 0;
                db.due.insert((0, entry.number));
            }
        }
    }

    /// When the next name is to be looked at, boot clock, ms.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.dbs.values().filter_map(|db| db.due.first().map(|&(due, _)| due)).min()
    }

    /// A name that is to be looked at by `now`, the longest overdue first.
    #[must_use]
    pub fn due(&self, now: u64) -> Option<(i32, Box<[u8]>)> {
        let first = |(&number, db): (&i32, &Db)| db.due.first().map(|&(due, entry)| (due, number, entry));
        let (due, number, entry) = self.dbs.iter().filter_map(first).min()?;
        if due > now {
            return None;
        }
        let name = self.dbs.get(&number)?.order.get(&entry)?;
        Some((number, Box::from(&**name)))
    }

    /// How many names are to be looked at by `now`, counted up to `most`.
    #[must_use]
    pub fn backlog(&self, now: u64, most: usize) -> usize {
        self.dbs
            .values()
            .flat_map(|db| db.due.iter().take(most).filter(|&&(due, _)| due <= now))
            .take(most)
            .count()
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dbs.values().map(|db| db.names.len()).sum()
    }

    /// How many names a database has.
    #[must_use]
    pub fn len_of(&self, db: i32) -> usize {
        self.dbs.get(&db).map_or(0, |db| db.names.len())
    }

    /// Up to `count` names of a database behind the one with number `after` (0: from the start),
    /// with their numbers. A name that stays is listed exactly once, whatever else comes and goes.
    #[must_use]
    pub fn page(&self, db: i32, after: u64, count: usize) -> Vec<(u64, Box<[u8]>)> {
        let Some(db) = self.dbs.get(&db) else { return Vec::new() };
        db.order
            .range(after.saturating_add(1)..)
            .take(count)
            .map(|(&number, name)| (number, Box::from(&**name)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(index: &Index, now: u64) -> Option<(i32, Vec<u8>)> {
        index.due(now).map(|(db, name)| (db, name.into_vec()))
    }

    #[test]
    fn the_longest_overdue_comes_first_over_all_databases() {
        let mut index = Index::default();
        index.set(0, b"a", 30);
        index.set(3, b"b", 20);
        index.set(0, b"c", u64::MAX);
        assert_eq!(index.next_due(), Some(20));
        assert_eq!(due(&index, 19), None);
        assert_eq!(due(&index, 30), Some((3, b"b".to_vec())));
        index.set(3, b"b", 40);
        assert_eq!(due(&index, 30), Some((0, b"a".to_vec())));
        assert_eq!((index.backlog(39, 10), index.backlog(40, 10), index.backlog(40, 1)), (1, 2, 1));
        assert_eq!(index.len(), 3);
    }

    #[test]
    fn names_follow_swap_clear_and_removal() {
        let mut index = Index::default();
        index.set(0, b"a", 1);
        index.set(1, b"b", 2);
        index.swap(0, 1);
        assert_eq!(due(&index, 9), Some((1, b"a".to_vec())));
        index.swap(1, 5);
        assert_eq!(due(&index, 9), Some((5, b"a".to_vec())));
        index.remove(5, b"a");
        index.remove(5, b"a");
        assert_eq!(due(&index, 9), Some((0, b"b".to_vec())));
        index.clear(Some(0));
        assert_eq!((index.next_due(), index.len()), (None, 0));
    }

    #[test]
    fn everything_can_be_made_due() {
        let mut index = Index::default();
        index.set(0, b"a", u64::MAX);
        index.set(0, b"b", 70);
        index.all_due();
        assert_eq!(index.backlog(0, 10), 2);
    }

    #[test]
    fn a_listing_gives_each_name_that_stays_once() {
        let mut index = Index::default();
        for name in [b"a", b"b", b"c", b"d"] {
            index.set(0, name, 5);
        }
        let page = index.page(0, 0, 2);
        assert_eq!(page.iter().map(|(_, name)| name.to_vec()).collect::<Vec<_>>(), [b"a", b"b"]);
        index.remove(0, b"b");
        index.set(0, b"b", 5);
        let rest = index.page(0, page[1].0, 9);
        assert_eq!(rest.iter().map(|(_, name)| name.to_vec()).collect::<Vec<_>>(), [b"c", b"d", b"b"]);
        assert!(index.page(7, 0, 2).is_empty());
        assert_eq!((index.len_of(0), index.len_of(7)), (4, 0));
    }
}
