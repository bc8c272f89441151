//! A queue as plain values, for the persisted form: taken out in a fixed order, so that equal
//! queues give equal sequences, and put back with every value checked.

use super::job::{Job, More, Reason, State};
use super::limits::{CLOCK_MS_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX};
use super::registry::{Worker, WorkerNo};
use super::serial::Serial;
use super::{JobOptions, Queue, Settings, Stamp, Totals};

/// Everything of a queue but its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Settings.
    pub settings: Settings,
    /// The queue's clock.
    pub clock: Stamp,
    /// See [`Queue::paused_until`].
    pub paused_until: Option<u64>,
    /// Totals.
    pub totals: Totals,
    /// How many job records follow.
    pub jobs: u64,
    /// Number of the next worker to register.
    pub next_worker: u64,
    /// The registry, by number.
    pub workers: Vec<WorkerRecord>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the registry
pub struct WorkerRecord {
    pub number: u64,
    pub name: Box<[u8]>,
    pub first_seen: u64,
    pub done: u64,
    pub failed: u64,
    pub crashed: u64,
}

/// A job. Named as its fields; see `job.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct JobRecord<'a> {
    pub arrival: Serial,
    pub payload: &'a [u8],
    pub since: u64,
    pub at: u64,
    pub enqueued: u64,
    pub touched: u64,
    pub token: Serial,
    pub worker: u64,
    pub deliveries: u32,
    pub attempts: u32,
    pub crashes: u32,
    pub state: State,
    pub priority: u8,
    pub follows_wall: bool,
    pub keeps_place: bool,
    pub cancelling: bool,
    pub acked: bool,
    pub more: Option<MoreRecord<'a>>,
}

/// The seldom used parts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MoreRecord<'a> {
    pub custom_id: Option<&'a [u8]>,
    pub options: JobOptions,
    pub deadline: Option<u64>,
    pub value: Option<&'a [u8]>,
    pub error: Option<&'a [u8]>,
    pub reason: Option<Reason>,
    pub last_worker: Option<&'a [u8]>,
}

impl Queue {
    /// Everything but the jobs.
    #[must_use]
    pub fn header(&self) -> Header {
        let workers = self.registry.numbered().map(|(number, worker)| WorkerRecord {
            number: number.0,
            name: worker.name.clone(),
            first_seen: worker.first_seen,
            done: worker.done,
            failed: worker.failed,
            crashed: worker.crashed,
        });
        Header {
            settings: self.settings,
            clock: self.clock,
            paused_until: self.paused_until,
            totals: self.totals,
            jobs: self.jobs.len() as u64,
            next_worker: self.registry.next_number(),
            workers: workers.collect(),
        }
    }

    /// The jobs, container by container, each in its order.
    pub fn records(&self) -> impl Iterator<Item = JobRecord<'_>> {
        let timed =
            [&self.delayed, &self.delayed_wall, &self.leases, &self.done, &self.dead, &self.cancelled];
        let timed = timed.into_iter().flat_map(|timeline| timeline.iter()).map(|(_, slot)| slot);
        let ready = self.ready.iter_after(None).map(|(_, _, slot)| slot);
        ready.chain(timed).filter_map(|slot| self.jobs.get(slot)).map(record)
    }
}

fn record(job: &Job) -> JobRecord<'_> {
    JobRecord {
        arrival: job.arrival,
        payload: &job.payload,
        since: job.since,
        at: job.at,
        enqueued: job.enqueued,
        touched: job.touched,
        token: job.token,
        worker: job.worker.0,
        deliveries: job.deliveries,
        attempts: job.attempts,
        crashes: job.crashes,
        state: job.state,
        priority: job.priority,
        follows_wall: job.follows_wall,
        keeps_place: job.keeps_place,
        cancelling: job.cancelling,
        acked: job.acked,
        more: job.more.as_deref().map(|more| MoreRecord {
            custom_id: more.custom_id.as_deref(),
            options: more.options,
            deadline: more.deadline,
            value: more.value.as_deref(),
            error: more.error.as_deref(),
            reason: more.reason,
            last_worker: more.last_worker.as_deref(),
        }),
    }
}

/// Puts a queue together again.
#[derive(Debug)]
pub struct Builder {
    queue: Queue,
    expected: u64,
}

impl Builder {
    /// Begins with a header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(header: Header) -> Result<Self, String> {
        if header.clock.now > CLOCK_MS_MAX || header.clock.wall > CLOCK_MS_MAX {
            return Err("the clock is out of range".into());
        }
        if header.clock.serial > Serial::first_of(CLOCK_MS_MAX.saturating_mul(2)) {
            return Err("the serial is out of range".into());
        }
        if header.next_worker > u64::MAX / 2 {
            return Err("the worker number is out of range".into());
        }
        let mut queue = Queue::new(header.settings, header.clock);
        queue.paused_until = header.paused_until;
        queue.totals = header.totals;
        for worker in header.workers {
            let number = worker.number;
            if worker.name.len() > NAME_BYTES_MAX || number >= header.next_worker {
                return Err("a worker is out of range".into());
            }
            let worker = Worker {
                name: worker.name,
                first_seen: worker.first_seen,
                last_seen: header.clock.now,
                done: worker.done,
                failed: worker.failed,
                crashed: worker.crashed,
                held: Default::default(),
            };
            queue.registry.add(WorkerNo(number), worker).ok_or("a worker is there twice")?;
        }
        queue.registry.set_next_number(header.next_worker);
        Ok(Self { queue, expected: header.jobs })
    }

    /// Adds a job.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push(&mut self, record: &JobRecord<'_>) -> Result<(), String> {
        let worker = WorkerNo(record.worker);
        if record.state == State::Active {
            let holder = self.queue.registry.get(worker).ok_or("an active job without a worker")?;
            if holder.held.contains_key(&record.token) {
                return Err(format!("token {} is there twice", record.token));
            }
        }
        if let Some(more) = &record.more {
            let longest = [more.error, more.last_worker].into_iter().flatten().map(<[u8]>::len).max();
            if longest > Some(TEXT_BYTES_MAX) {
                return Err("a text is too long".into());
            }
        }
        let job = Job {
            arrival: record.arrival,
            payload: record.payload.into(),
            since: record.since,
            at: record.at,
            enqueued: record.enqueued,
            touched: record.touched,
            token: record.token,
            worker,
            deliveries: record.deliveries,
            attempts: record.attempts,
            crashes: record.crashes,
            state: record.state,
            priority: record.priority,
            follows_wall: record.follows_wall,
            keeps_place: record.keeps_place,
            cancelling: record.cancelling,
            acked: record.acked,
            more: record.more.as_ref().map(|more| {
                Box::new(More {
                    custom_id: more.custom_id.map(Box::from),
                    options: more.options,
                    deadline: more.deadline,
                    value: more.value.map(Box::from),
                    error: more.error.map(Box::from),
                    reason: more.reason,
                    last_worker: more.last_worker.map(Box::from),
                })
            }),
        };
        self.queue.admit(job).map(drop).map_err(|error| format!("a job is refused: {error:?}"))
    }

    /// The whole queue, audited.
    ///
    /// # Errors
    /// What does not agree.
    pub fn finish(self) -> Result<Queue, String> {
        if self.queue.jobs.len() as u64 != self.expected {
            return Err(format!("{} jobs instead of {}", self.queue.jobs.len(), self.expected));
        }
        self.queue.audit()?;
        Ok(self.queue)
    }
}
