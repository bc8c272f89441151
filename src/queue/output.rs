//! What a worker puts out while it runs a job, and what readers see of it: chunks, in the order in which
//! they came.
//!
//! An output belongs to one *run*, the delivery that put it out, and is dropped when the job goes back to
//! waiting: the next run begins anew. A job that ends keeps what its last run put out.
//!
//! Small chunks lie packed in pages, large ones have a page each. So a chunk is added without a look at
//! those before it, and found by a search among the pages.

use super::job::{Job, Slot, State, allocated};
use super::limits::{OUTPUT_CHUNKS_MAX, READ_BYTES_MAX};
use super::op::{Delivery, Effects, Emitted, Outcome};
use super::view::JobView;
use super::{Error, Queue};

/// The chunks that a run put out. Not empty once it is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    pages: Vec<Page>,
    /// Bytes of all chunks.
    bytes: usize,
    /// Bytes on the heap of all pages.
    paged: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    /// The number of its first chunk.
    first: u32,
    /// Its chunks, one behind the other.
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
}

/// Bytes after which a page is full. A single larger chunk makes a larger page. Not smaller: a page is two pieces of
/// memory to be freed, and a sweep may free a thousand outputs.
const PAGE_BYTES: usize = 64 * 1024;
/// Chunks after which a page is full.
const PAGE_CHUNKS: usize = 4_096;

/// With the same room.
impl Clone for Output {
    fn clone(&self) -> Self {
        Self { pages: roomy(&self.pages), ..*self }
    }
}

/// With the same room.
impl Clone for Page {
    fn clone(&self) -> Self {
        Self { first: self.first, bytes: roomy(&self.bytes), ends: roomy(&self.ends) }
    }
}

/// A copy that has room for as much.
fn roomy<T: Clone>(values: &Vec<T>) -> Vec<T> {
    let mut copy = Vec::with_capacity(values.capacity());
    copy.extend_from_slice(values);
    copy
}

impl Page {
    fn takes(&self, chunk: &[u8]) -> bool {
        self.bytes.len().saturating_add(chunk.len()) <= PAGE_BYTES && self.ends.len() < PAGE_CHUNKS
    }

    fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    fn get(&self, number: usize) -> Option<&[u8]> {
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(before as usize..*self.ends.get(number)? as usize)
    }

    fn heap_bytes(&self) -> usize {
        let ends = self.ends.capacity().saturating_mul(size_of::<u32>());
        allocated(self.bytes.capacity()).saturating_add(allocated(ends))
    }
}

impl Output {
    /// Of these chunks; `None` if there are none.
    pub fn of(chunks: &[&[u8]]) -> Option<Box<Self>> {
        let mut output = Self::default();
        chunks.iter().for_each(|chunk| output.push(chunk));
        (!chunks.is_empty()).then(|| Box::new(output))
    }

    /// How many chunks it has.
    pub fn len(&self) -> usize {
        self.pages.last().map_or(0, |page| (page.first as usize).saturating_add(page.ends.len()))
    }

    /// Bytes of all chunks.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a chunk. O(its length), as pages grow, and they do not grow long.
    pub fn push(&mut self, chunk: &[u8]) {
        let first = self.len();
        let before = self.pages.last().map_or(0, Page::heap_bytes);
        let mut freed = 0usize;
        if let Some(page) = self.pages.last_mut()
            && !page.takes(chunk)
        {
            page.bytes.shrink_to_fit();
            page.ends.shrink_to_fit();
            freed = page.heap_bytes();
        }
        if freed > 0 || self.pages.is_empty() {
            let first = u32::try_from(first).unwrap_or(u32::MAX);
            self.pages.push(Page { first, ..Page::default() });
        }
        let Some(page) = self.pages.last_mut() else { return };
        page.push(chunk);
        let after = freed.saturating_add(page.heap_bytes());
        self.paged = self.paged.saturating_add(after).saturating_sub(before);
        self.bytes = self.bytes.saturating_add(chunk.len());
    }

    /// A chunk by its number, from 0.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let behind = self.pages.partition_point(|page| page.first as usize <= number);
        let page = self.pages.get(behind.checked_sub(1)?)?;
        page.get(number.checked_sub(page.first as usize)?)
    }

    /// The chunks from a number on.
    pub fn iter_from(&self, number: usize) -> impl Iterator<Item = &[u8]> {
        (number..self.len()).filter_map(|number| self.get(number))
    }

    /// Bytes on the heap, with itself. O(1).
    pub const fn heap_bytes(&self) -> usize {
        let pages = allocated(self.pages.capacity().saturating_mul(size_of::<Page>()));
        allocated(size_of::<Self>()).saturating_add(pages).saturating_add(self.paged)
    }

    /// Whether its books agree with its pages, and it is within the limits.
    pub fn is_sound(&self) -> bool {
        let paged = self.pages.iter().fold(0usize, |sum, page| sum.saturating_add(page.heap_bytes()));
        let bytes = self.iter_from(0).fold(0usize, |sum, chunk| sum.saturating_add(chunk.len()));
        paged == self.paged && bytes == self.bytes && (1..=OUTPUT_CHUNKS_MAX).contains(&self.len())
    }
}

/// A place in the output of a job: so many chunks of a run lie before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the run: how often the job has been handed out, this run included.
    pub run: u64,
    /// How many chunks lie before it.
    pub number: u64,
}

/// From where on an output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// From this chunk of the present run on.
    Number(u64),
    /// From there on; from the start of the present run, if that is another one.
    Place(Place),
}

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading<'q> {
    /// Where it begins.
    pub from: Place,
    /// Its chunks.
    pub chunks: Vec<&'q [u8]>,
    /// The final state of the job, if nothing follows.
    pub ended: Option<State>,
}

impl Reading<'_> {
    /// Where to go on.
    #[must_use]
    pub fn next(&self) -> Place {
        let number = self.from.number.saturating_add(self.chunks.len() as u64);
        Place { number, ..self.from }
    }

    /// Whether it tells more than one knows who stands at that place.
    #[must_use]
    pub fn is_news(&self, place: Place) -> bool {
        self.from.run != place.run || !self.chunks.is_empty() || self.ended.is_some()
    }
}

impl<'q> Job<'q> {
    pub fn output(&self) -> Option<&'q Output> {
        self.more?.output()
    }

    /// The number of the run that its output belongs to: the present or last one, or, of a job that
    /// waits, the next.
    pub fn run(&self) -> u64 {
        let is_waiting = matches!(self.state, State::Delayed | State::Ready);
        u64::from(self.deliveries).saturating_add(u64::from(is_waiting))
    }
}

impl<'q> JobView<'q> {
    /// How many chunks it has put out in this run, and how many bytes these are in all.
    #[must_use]
    pub fn output(&self) -> (usize, usize) {
        self.job().output().map_or((0, 0), |output| (output.len(), output.bytes()))
    }

    /// Where a reader stands who asks for what follows `start`.
    #[must_use]
    pub fn place(&self, start: Start) -> Place {
        let run = self.job().run();
        match start {
            Start::Number(number) => Place { run, number },
            Start::Place(place) if place.run == run => place,
            Start::Place(_) => Place { run, number: 0 },
        }
    }

    /// What its present run has put out behind `start`: at most `count` chunks, and after the first no
    /// more than [`READ_BYTES_MAX`] in all.
    #[must_use]
    pub fn read(&self, start: Start, count: usize) -> Reading<'q> {
        let from = self.place(start);
        let mut reading = Reading { from, chunks: Vec::new(), ended: None };
        let output = self.job().output();
        if let (Some(output), Ok(first)) = (output, usize::try_from(from.number)) {
            let mut bytes = 0usize;
            reading.chunks.extend(output.iter_from(first).take(count).take_while(|chunk| {
                let is_first = bytes == 0;
                bytes = bytes.saturating_add(chunk.len());
                is_first || bytes <= READ_BYTES_MAX
            }));
        }
        let is_end = reading.next().number >= output.map_or(0, Output::len) as u64;
        reading.ended = Some(self.job().state).filter(|state| is_end && state.is_final());
        reading
    }
}

impl Queue {
    pub(super) fn emit(
        &mut self,
        delivery: Delivery<'_>,
        chunk: &[u8],
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let slot = self.current(delivery)?;
        let job = self.jobs.get(slot).ok_or(Error::NoJob)?;
        let (chunks, bytes) = job.output().map_or((0, 0), |output| (output.len(), output.bytes()));
        let is_over = bytes.saturating_add(chunk.len()) as u64 > self.settings.max_output;
        if is_over || chunks >= OUTPUT_CHUNKS_MAX {
            return Err(Error::OutputFull);
        }
        self.edit(slot, |job| {
            job.more().past.get_or_insert_default().output.get_or_insert_default().push(chunk);
        });
        fx.changed = true;
        if let (Some(observer), Some(job)) = (&mut fx.observer, self.jobs.get(slot)) {
            let place = Place { run: job.run(), number: chunks as u64 };
            observer.emitted(&Emitted { id: job.id(), place, chunk });
        }
        Ok(Outcome::Progressed(self.held(slot)))
    }

    /// Tells whoever follows a job that waits again that its output begins anew.
    pub(super) fn tell_restart(&self, slot: Slot, fx: &mut Effects<'_>) {
        if let Some(observer) = &mut fx.observer
            && let Some(job) = self.jobs.get(slot)
        {
            observer.restarted(job.id(), job.run());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_whatever_their_size() {
        let lengths = [0, 1, 5, 65_535, 65_536, 65_537, 0, 0, 1_500_000, 3, 100];
        let mut output = Output::default();
        let mut known: Vec<Vec<u8>> = Vec::new();
        for round in 0..12_000 {
            let length = if round < 200 { lengths[round % lengths.len()] } else { round % 7 };
            let chunk: Vec<u8> = (0..length).map(|at| (at ^ round) as u8).collect();
            output.push(&chunk);
            known.push(chunk);
            assert_eq!(output.len(), known.len());
        }
        assert!(output.is_sound());
        assert_eq!(output.iter_from(0).collect::<Vec<_>>(), known);
        assert_eq!(output.iter_from(11_990).collect::<Vec<_>>(), known[11_990..]);
        assert_eq!(output.get(12_000), None);
        let twin = output.clone();
        assert!(twin.is_sound() && twin == output && twin.heap_bytes() == output.heap_bytes());
    }

    #[test]
    fn many_small_chunks_take_little_more_than_their_bytes() {
        let mut output = Output::default();
        for _ in 0..OUTPUT_CHUNKS_MAX {
            output.push(b"token ");
        }
        let bytes = OUTPUT_CHUNKS_MAX * 6;
        assert_eq!((output.len(), output.bytes()), (OUTPUT_CHUNKS_MAX, bytes));
        assert!(output.heap_bytes() < 2 * bytes, "{} bytes for {bytes}", output.heap_bytes());
        assert!(output.is_sound());
        output.push(b"");
        assert!(!output.is_sound(), "one too many");
    }
}
