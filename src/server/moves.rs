//! Where queues go while granted jobs are on their way to their clients. If the client turns out to be gone, its jobs
//! are given back where the queue is by then.

/// The moves since the oldest grant that is on its way.
#[derive(Debug, Default)]
pub struct Moves {
    on_the_way: usize,
    log: Vec<Move>,
    /// The name that a key has just left.
    left: Option<Place>,
}

/// A name in a database.
pub type Place = (i32, Box<[u8]>);

#[derive(Debug)]
enum Move {
    Key { from: Place, to: Place },
    Swap(i32, i32),
}

/// Most moves noted. A grant is on its way for a moment only, so this is beyond what anybody does; then the job comes
/// back when its lease lapses.
const LOG_MAX: usize = 1_000;

impl Moves {
    /// Jobs are granted. Returns a mark for [`Self::follow`].
    pub const fn depart(&mut self) -> usize {
        self.on_the_way = self.on_the_way.saturating_add(1);
        self.log.len()
    }

    /// The reply was written, or the jobs were given back.
    pub fn arrive(&mut self) {
        self.on_the_way = self.on_the_way.saturating_sub(1);
        if self.on_the_way == 0 {
            self.log.clear();
            self.left = None;
        }
    }

    /// A key leaves this name; [`Self::came`] says for where.
    pub fn leaves(&mut self, db: i32, name: &[u8]) {
        if self.on_the_way > 0 {
            self.left = Some((db, name.into()));
        }
    }

    /// A queue that has just left another name is here now.
    pub fn came(&mut self, db: i32, name: &[u8]) {
        if let Some(from) = self.left.take() {
            self.note(Move::Key { from, to: (db, name.into()) });
        }
    }

    /// Two databases changed places.
    pub fn swapped(&mut self, first: i32, second: i32) {
        if self.on_the_way > 0 {
            self.note(Move::Swap(first, second));
        }
    }

    fn note(&mut self, what: Move) {
        if self.log.len() < LOG_MAX {
            self.log.push(what);
        }
    }

    /// Where the queue is now that was at `place` at the time of the mark.
    pub fn follow(&self, mark: usize, mut place: Place) -> Place {
        for what in self.log.iter().skip(mark) {
            match what {
                Move::Key { from, to } if *from == place => place = to.clone(),
                Move::Swap(first, second) if place.0 == *first => place.0 = *second,
                Move::Swap(first, second) if place.0 == *second => place.0 = *first,
                _ => {}
            }
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(db: i32, name: &str) -> Place {
        (db, name.as_bytes().into())
    }

    fn rename(moves: &mut Moves, from: (i32, &str), to: (i32, &str)) {
        moves.leaves(from.0, from.1.as_bytes());
        moves.came(to.0, to.1.as_bytes());
    }

    #[test]
    fn a_queue_is_followed_from_its_mark_on() {
        let mut moves = Moves::default();
        rename(&mut moves, (0, "q"), (0, "unnoticed"));
        let first = moves.depart();
        rename(&mut moves, (0, "q"), (0, "r"));
        let second = moves.depart();
        rename(&mut moves, (0, "r"), (3, "r"));
        moves.swapped(3, 5);
        rename(&mut moves, (0, "other"), (0, "q"));
        assert_eq!(moves.follow(first, place(0, "q")), place(5, "r"));
        assert_eq!(moves.follow(second, place(0, "q")), place(0, "q"));
        assert_eq!(moves.follow(second, place(5, "x")), place(3, "x"));
        moves.arrive();
        assert_eq!(moves.follow(first, place(0, "q")), place(5, "r"));
        moves.arrive();
        assert_eq!(moves.follow(first, place(0, "q")), place(0, "q"));
    }

    #[test]
    fn what_is_noted_is_bounded() {
        let mut moves = Moves::default();
        moves.depart();
        for _ in 0..LOG_MAX * 2 {
            moves.swapped(1, 2);
        }
        assert_eq!(moves.log.len(), LOG_MAX);
    }
}
