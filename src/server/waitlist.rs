//! Who waits for what, in which order. Nothing of the server: `H` is the handle of a client.
//!
//! A waiter has a number, from a counter that only grows: the smaller, the longer it has waited.
//! It stands in the line of every queue that it waits for. All steps are O(log n) or better, so
//! thousands that wait cost nothing while nothing happens.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use hashbrown::HashMap;

use crate::queue::Place;

/// Everybody who waits.
#[derive(Debug)]
pub struct WaitList<K, H> {
    waiters: HashMap<u64, Waiter<H>>,
    /// Lines by database and name.
    lines: BTreeMap<i32, HashMap<Box<[u8]>, Line>>,
    /// When waits end, boot clock, ms.
    deadlines: BTreeSet<(u64, u64)>,
    /// Numbers by what the server knows a client by.
    numbers: HashMap<K, u64>,
    /// Number of the next.
    next: u64,
    /// How many wait for news of jobs.
    watching: usize,
}

/// One client that waits.
#[derive(Debug)]
pub struct Waiter<H> {
    /// Its handle.
    pub handle: H,
    /// In which database.
    pub db: i32,
    /// For which queues.
    pub names: Vec<Box<[u8]>>,
    /// What for.
    pub want: Want,
    /// Since when, boot clock, ms.
    pub since: u64,
    /// Until when, boot clock, ms; `None`: for ever.
    pub deadline: Option<u64>,
}

/// What a client waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Jobs.
    Claim(WantClaim),
    /// News of one job.
    Job(WantJob),
}

/// News of a job that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantJob {
    /// Its id, in its shown form.
    pub id: Box<[u8]>,
    /// What news.
    pub news: News,
}

/// What one may wait for a job to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// To end.
    End,
    /// To put something out behind this place, or to begin another run, or to end.
    Output {
        /// Where the reader stands.
        place: Place,
        /// At most so many chunks are to be told.
        count: u32,
    },
}

/// A claim that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantClaim {
    /// Who takes the jobs.
    pub worker: Box<[u8]>,
    /// At most so many.
    pub count: usize,
    /// Lease, ms.
    pub lease: Option<u64>,
    /// Whether the reply shows each job as a map.
    pub full: bool,
    /// Whether the reply names the queue.
    pub named: bool,
}

#[derive(Debug, Default)]
struct Line {
    claims: BTreeSet<u64>,
    /// Those who wait for news of a job, by its id.
    watchers: HashMap<Box<[u8]>, BTreeSet<u64>>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.watchers.is_empty()
    }
}

impl<H> Waiter<H> {
    const fn is_watching(&self) -> bool {
        matches!(self.want, Want::Job(_))
    }
}

impl<K, H> Default for WaitList<K, H> {
    fn default() -> Self {
        Self {
            waiters: HashMap::new(),
            lines: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            numbers: HashMap::new(),
            next: 0,
            watching: 0,
        }
    }
}

impl<K: Hash + Eq + Copy, H> WaitList<K, H> {
    /// Adds one, known to the server by `key`. Returns its number.
    pub fn add(&mut self, key: K, waiter: Waiter<H>) -> u64 {
        self.next = self.next.saturating_add(1);
        self.numbers.insert(key, self.next);
        self.put_back(self.next, waiter);
        self.next
    }

    /// Puts one back into its place that was taken out with [`Self::take`] and not served.
    pub fn put_back(&mut self, number: u64, waiter: Waiter<H>) {
        let db = self.lines.entry(waiter.db).or_default();
        for name in &waiter.names {
            let line = match db.get_mut(name) {
                Some(line) => line,
                None => db.entry(name.clone()).or_default(),
            };
            match &waiter.want {
                Want::Claim(_) => {
                    line.claims.insert(number);
                }
                Want::Job(want) => {
                    line.watchers.entry(want.id.clone()).or_default().insert(number);
                }
            }
        }
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, number));
        }
        self.watching = self.watching.saturating_add(usize::from(waiter.is_watching()));
        self.waiters.insert(number, waiter);
    }

    /// Takes one out. The server still knows it: see [`Self::forget`].
    pub fn take(&mut self, number: u64) -> Option<Waiter<H>> {
        let waiter = self.waiters.remove(&number)?;
        self.watching = self.watching.saturating_sub(usize::from(waiter.is_watching()));
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, number));
        }
        if let Some(db) = self.lines.get_mut(&waiter.db) {
            for name in &waiter.names {
                let Some(line) = db.get_mut(name) else { continue };
                match &waiter.want {
                    Want::Claim(_) => {
                        line.claims.remove(&number);
                    }
                    Want::Job(WantJob { id, .. }) => {
                        if let Some(numbers) = line.watchers.get_mut(id) {
                            numbers.remove(&number);
                            if numbers.is_empty() {
                                line.watchers.remove(id);
                            }
                        }
                    }
                }
                if line.is_empty() {
                    db.remove(name);
                }
            }
            if db.is_empty() {
                self.lines.remove(&waiter.db);
            }
        }
        Some(waiter)
    }

    /// Its handle is given back to the server.
    pub fn forget(&mut self, key: K) {
        self.numbers.remove(&key);
    }

    /// The number of the one that the server knows by `key`.
    #[must_use]
    pub fn number(&self, key: K) -> Option<u64> {
        self.numbers.get(&key).copied()
    }

    fn line(&self, db: i32, name: &[u8]) -> Option<&Line> {
        self.lines.get(&db)?.get(name)
    }

    /// Whether anybody waits for this queue.
    #[must_use]
    pub fn is_awaited(&self, db: i32, name: &[u8]) -> bool {
        self.line(db, name).is_some()
    }

    /// Whether anybody waits for jobs of this queue.
    #[must_use]
    pub fn has_claims(&self, db: i32, name: &[u8]) -> bool {
        self.line(db, name).is_some_and(|line| !line.claims.is_empty())
    }

    /// Whether anybody waits for news of a job of this queue.
    #[must_use]
    pub fn has_watchers(&self, db: i32, name: &[u8]) -> bool {
        self.watching > 0 && self.line(db, name).is_some_and(|line| !line.watchers.is_empty())
    }

    /// Who gets the next job of this queue: who has waited longest, or who asked last.
    #[must_use]
    pub fn claimer(&self, db: i32, name: &[u8], who_asked_last: bool) -> Option<u64> {
        let claims = &self.line(db, name)?.claims;
        if who_asked_last { claims.last() } else { claims.first() }.copied()
    }

    /// Who waits for news of this job, and for what, longest first.
    #[must_use]
    pub fn watchers(&self, db: i32, name: &[u8], id: &[u8]) -> Vec<(u64, News)> {
        let numbers = self.line(db, name).and_then(|line| line.watchers.get(id)).into_iter().flatten();
        let news = numbers.filter_map(|&number| match &self.waiters.get(&number)?.want {
            Want::Job(want) => Some((number, want.news)),
            Want::Claim(_) => None,
        });
        news.collect()
    }

    /// The jobs of this queue that news are awaited of.
    #[must_use]
    pub fn awaited_ids(&self, db: i32, name: &[u8]) -> Vec<Box<[u8]>> {
        self.line(db, name).map(|line| line.watchers.keys().cloned().collect()).unwrap_or_default()
    }

    /// The workers that wait for jobs of this queue, with since when (boot clock, ms).
    pub fn workers<'s>(&'s self, db: i32, name: &[u8]) -> impl Iterator<Item = (&'s [u8], u64)> {
        let numbers = self.line(db, name).into_iter().flat_map(|line| line.claims.iter());
        numbers.filter_map(|number| {
            let waiter = self.waiters.get(number)?;
            match &waiter.want {
                Want::Claim(claim) => Some((&*claim.worker, waiter.since)),
                Want::Job(_) => None,
            }
        })
    }

    /// The names awaited in a database, or in all.
    #[must_use]
    pub fn names(&self, db: Option<i32>) -> Vec<(i32, Box<[u8]>)> {
        self.lines
            .iter()
            .filter(|&(&number, _)| db.is_none_or(|db| db == number))
            .flat_map(|(&number, lines)| lines.keys().map(move |name| (number, name.clone())))
            .collect()
    }

    /// Everybody who waits for this queue.
    #[must_use]
    pub fn numbers_at(&self, db: i32, name: &[u8]) -> Vec<u64> {
        self.line(db, name)
            .map(|line| line.claims.iter().chain(line.watchers.values().flatten()).copied().collect())
            .unwrap_or_default()
    }

    /// When the next wait ends, boot clock, ms.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// One whose wait has ended.
    #[must_use]
    pub fn overdue(&self, now: u64) -> Option<u64> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, number)| number)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(names: &[&[u8]], worker: &[u8], deadline: Option<u64>) -> Waiter<&'static str> {
        Waiter {
            handle: "handle",
            db: 0,
            names: names.iter().map(|&name| name.into()).collect(),
            want: Want::Claim(WantClaim {
                worker: worker.into(),
                count: 1,
                lease: None,
                full: false,
                named: false,
            }),
            since: 7,
            deadline,
        }
    }

    fn result(id: &[u8]) -> Waiter<&'static str> {
        Waiter {
            handle: "handle",
            db: 0,
            names: vec![(*b"q").into()],
            want: Want::Job(WantJob { id: id.into(), news: News::End }),
            since: 0,
            deadline: None,
        }
    }

    #[test]
    fn first_come_first_served_and_last_for_ghosts() {
        let mut list = WaitList::<u32, _>::default();
        let first = list.add(1, claim(&[b"q"], b"a", None));
        let second = list.add(2, claim(&[b"q"], b"b", None));
        let third = list.add(3, claim(&[b"q"], b"c", None));
        assert_eq!((list.claimer(0, b"q", false), list.claimer(0, b"q", true)), (Some(first), Some(third)));
        let taken = list.take(first).unwrap();
        assert_eq!(list.claimer(0, b"q", false), Some(second));
        list.put_back(first, taken);
        assert_eq!(list.claimer(0, b"q", false), Some(first));
        assert_eq!(list.workers(0, b"q").collect::<Vec<_>>(), [(&b"a"[..], 7), (b"b", 7), (b"c", 7)]);
        assert_eq!(list.claimer(1, b"q", false), None);
    }

    #[test]
    fn one_that_waits_for_two_queues_leaves_both_lines() {
        let mut list = WaitList::<u32, _>::default();
        let number = list.add(1, claim(&[b"p", b"q"], b"a", Some(50)));
        assert!(list.has_claims(0, b"p") && list.has_claims(0, b"q") && !list.has_watchers(0, b"p"));
        assert_eq!(list.numbers_at(0, b"p"), [number]);
        list.take(number).unwrap();
        assert!(!list.is_awaited(0, b"p") && !list.is_awaited(0, b"q"));
        assert_eq!((list.next_deadline(), list.len(), list.names(None).len()), (None, 0, 0));
        assert!(list.take(number).is_none());
        assert_eq!(list.number(1), Some(number));
        list.forget(1);
        assert_eq!(list.number(1), None);
    }

    #[test]
    fn a_queue_named_twice_is_waited_for_once() {
        let mut list = WaitList::<u32, _>::default();
        let number = list.add(1, claim(&[b"q", b"q"], b"a", None));
        assert_eq!(list.numbers_at(0, b"q"), [number]);
        list.take(number).unwrap();
        assert!(!list.is_awaited(0, b"q"));
    }

    #[test]
    fn waits_end_in_the_order_of_their_deadlines() {
        let mut list = WaitList::<u32, _>::default();
        let late = list.add(1, claim(&[b"q"], b"a", Some(90)));
        let early = list.add(2, claim(&[b"q"], b"b", Some(40)));
        assert_eq!((list.overdue(39), list.overdue(40), list.next_deadline()), (None, Some(early), Some(40)));
        list.take(early).unwrap();
        assert_eq!(list.overdue(99), Some(late));
    }

    #[test]
    fn many_may_wait_for_one_job() {
        let mut list = WaitList::<u32, _>::default();
        let one = list.add(1, result(b"5-1"));
        let two = list.add(2, result(b"5-1"));
        list.add(3, result(b"5-2"));
        assert_eq!(list.watchers(0, b"q", b"5-1"), [(one, News::End), (two, News::End)]);
        list.take(one).unwrap();
        assert_eq!(list.watchers(0, b"q", b"5-1"), [(two, News::End)]);
        list.take(two).unwrap();
        assert_eq!(list.awaited_ids(0, b"q"), [(*b"5-2").into()]);
    }
}
