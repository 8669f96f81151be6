//! Fair queues by deficit round robin. Each queue with jobs gets processor time in proportion to its share, independent of the
//! other queues. Scheduling a job costs constant time, however many queues there are.
//!
//! Performs no I/O and uses no clock or lock. Work is measured in microseconds, as estimated for each job.

use std::collections::VecDeque;

/// Capacity in jobs that an empty queue retains. A larger capacity is freed.
const IDLE_CAPACITY_MAX: usize = 64;

/// Maximum share. Between two turns of a queue, another queue runs at most this many jobs of maximum work.
pub const SHARE_MAX: u32 = 100;

/// Minimum slots of each queue, however small its share: two slices of light work.
const PLACES_MIN: usize = 16;

/// Job queues that get processor time in proportion to their shares. Queues are numbered from 0.
#[derive(Debug)]
pub struct FairQueue<T> {
    queues: Vec<JobQueue<T>>,
    /// Queues with jobs, in the order of their turns.
    turns: VecDeque<usize>,
    waiting: usize,
    waiting_max: usize,
    /// Work that a queue of share 1 may do in one turn: the work of the most expensive job, so that every turn runs at least one
    /// job.
    quantum: u64,
    /// Sum of the shares of all queues.
    shares: u64,
}

#[derive(Debug)]
struct JobQueue<T> {
    jobs: VecDeque<(u64, T)>,
    share: u32,
    /// Work that the queue may still do in this turn.
    credit: u64,
    has_turn: bool,
}

impl<T> JobQueue<T> {
    fn new() -> Self {
        Self { jobs: VecDeque::new(), share: 0, credit: 0, has_turn: false }
    }

    /// Returns the share for scheduling. A queue that is no longer in use drains with the smallest share.
    fn weight(&self) -> u64 {
        u64::from(self.share.max(1))
    }
}

impl<T> FairQueue<T> {
    /// Creates a scheduler with a single queue of share 1 and `waiting_max` slots. With more queues, all queues together have at
    /// most twice `waiting_max` slots, plus sixteen for each queue. `work_max` is the maximum work of one job, in µs.
    #[must_use]
    pub fn new(waiting_max: usize, work_max: u64) -> Self {
        let mut fair = Self {
            queues: Vec::new(),
            turns: VecDeque::new(),
            waiting: 0,
            waiting_max,
            quantum: work_max.max(1),
            shares: 0,
        };
        fair.set_shares(&[1]);
        fair
    }

    /// Sets the share of each queue, by queue number. A new share takes effect at the queue's next turn. A queue with share 0
    /// accepts no new jobs, but still runs its waiting ones. The maximum is [`SHARE_MAX`].
    pub fn set_shares(&mut self, shares: &[u32]) {
        while self.queues.len() < shares.len() {
            self.queues.push(JobQueue::new());
        }
        for (number, queue) in self.queues.iter_mut().enumerate() {
            queue.share = shares.get(number).copied().unwrap_or(0).min(SHARE_MAX);
        }
        self.shares = self.queues.iter().map(|queue| u64::from(queue.share)).sum();
    }

    /// Returns the number of waiting jobs in all queues.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of waiting jobs in one queue.
    #[must_use]
    pub fn queue_len(&self, number: usize) -> usize {
        self.queues.get(number).map_or(0, |queue| queue.jobs.len())
    }

    /// Appends a job with its work to a queue. The share of a queue determines its guaranteed slots. A queue may use more slots
    /// while slots are free. A single busy queue gets half of all slots, so that a new queue always finds free ones.
    ///
    /// # Errors
    /// Returns the job if the queue is full or not in use.
    pub fn put(&mut self, number: usize, work: u64, job: T) -> Result<(), T> {
        let own = self.guaranteed_slots(number);
        let free = self.waiting_max.saturating_sub(self.waiting);
        let Some(queue) = self.queues.get_mut(number).filter(|queue| queue.share > 0) else {
            return Err(job);
        };
        if queue.jobs.len() >= own.max(free) {
            return Err(job);
        }
        if queue.jobs.is_empty() {
            self.turns.push_back(number);
        }
        queue.jobs.push_back((work.min(self.quantum), job));
        self.waiting += 1;
        Ok(())
    }

    /// Returns the number of guaranteed slots of a queue.
    fn guaranteed_slots(&self, number: usize) -> usize {
        let share = self.queues.get(number).map_or(0, |queue| queue.share);
        let part = self.waiting_max as u64 * u64::from(share) / self.shares.max(1);
        usize::try_from(part).unwrap_or(usize::MAX).max(PLACES_MIN)
    }

    /// Takes the next job of the queue whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        loop {
            let number = *self.turns.front()?;
            let quantum = self.quantum;
            let queue = self.queues.get_mut(number)?;
            if !queue.has_turn {
                queue.has_turn = true;
                queue.credit += quantum * queue.weight();
            }
            match queue.jobs.front() {
                Some((work, _)) if *work > queue.credit => {
                    queue.has_turn = false;
                    self.turns.rotate_left(1);
                }
                // An empty queue gets no turn.
                None => drop(self.turns.pop_front()),
                Some(_) => {
                    let (work, job) = queue.jobs.pop_front()?;
                    queue.credit -= work;
                    self.waiting -= 1;
                    if queue.jobs.is_empty() {
                        // Unused credit expires, so that a queue cannot save up several turns.
                        (queue.credit, queue.has_turn) = (0, false);
                        if queue.jobs.capacity() > 4 * IDLE_CAPACITY_MAX {
                            queue.jobs.shrink_to(IDLE_CAPACITY_MAX);
                        }
                        self.turns.pop_front();
                    }
                    return Some(job);
                }
            }
        }
    }

    /// Removes all waiting jobs, and returns them.
    pub fn take_all(&mut self) -> Vec<T> {
        self.turns.clear();
        self.waiting = 0;
        let empty = |queue: &mut JobQueue<T>| {
            (queue.credit, queue.has_turn) = (0, false);
            std::mem::take(&mut queue.jobs)
        };
        self.queues.iter_mut().flat_map(empty).map(|(_, job)| job).collect()
    }
}
