//! Lines of work taken in turn, by deficit round robin: each line that has work gets processor time in proportion to its
//! share, whatever the others ask for, and a job costs the same few steps however many lines there are.
//!
//! Pure: no clock, no lock. What is counted is the work that jobs are said to be, in microseconds.

use std::collections::VecDeque;

/// Jobs for which an empty line keeps memory; what one burst needed is given back after it.
const KEPT: usize = 64;

/// The largest share: a line of share 1 then waits for this many of the dearest jobs of the other.
pub const SHARE_MAX: u32 = 100;

/// Places that any line has, however small its share: two slices of light work.
const PLACES_MIN: usize = 16;

/// Lines of jobs, of which each is served by its share. Lines are known by their numbers, from 0.
#[derive(Debug)]
pub struct Fair<T> {
    lines: Vec<Line<T>>,
    /// Lines that have jobs, the one whose turn it is first.
    turns: VecDeque<usize>,
    waiting: usize,
    waiting_max: usize,
    /// Work that a line of share 1 may do in its turn: that of the dearest job, so that every turn does at least one.
    quantum: u64,
    /// Of all lines in use.
    shares: u64,
}

#[derive(Debug)]
struct Line<T> {
    jobs: VecDeque<(u64, T)>,
    share: u32,
    /// Work it may still do in this turn.
    credit: u64,
    in_turn: bool,
}

impl<T> Line<T> {
    fn new() -> Self {
        Self { jobs: VecDeque::new(), share: 0, credit: 0, in_turn: false }
    }

    /// What is still in a line that is no longer in use drains by the smallest share.
    fn weight(&self) -> u64 {
        u64::from(self.share.max(1))
    }
}

impl<T> Fair<T> {
    /// One line of share 1. `waiting_max` jobs may wait where one line is alone, and at most twice as many (and
    /// sixteen a line) over all; no job is more work than `dearest`.
    #[must_use]
    pub fn new(waiting_max: usize, dearest: u64) -> Self {
        let mut fair = Self {
            lines: Vec::new(),
            turns: VecDeque::new(),
            waiting: 0,
            waiting_max,
            quantum: dearest.max(1),
            shares: 0,
        };
        fair.set_shares(&[1]);
        fair
    }

    /// Gives the lines these shares, by their numbers, from their next turn on. A share of 0 is a line not in use: it
    /// takes nothing more, and what it has is done. Shares above [`SHARE_MAX`] are taken as that.
    pub fn set_shares(&mut self, shares: &[u32]) {
        while self.lines.len() < shares.len() {
            self.lines.push(Line::new());
        }
        for (number, line) in self.lines.iter_mut().enumerate() {
            line.share = shares.get(number).copied().unwrap_or(0).min(SHARE_MAX);
        }
        self.shares = self.lines.iter().map(|line| u64::from(line.share)).sum();
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Jobs that wait in one line.
    #[must_use]
    pub fn waiting_in(&self, number: usize) -> usize {
        self.lines.get(number).map_or(0, |line| line.jobs.len())
    }

    /// Puts a job of so much work at the end of a line. A line has its share of the places for sure; beyond that it has
    /// as many as are free in all, so that one alone has half of them, and a newcomer always finds some.
    ///
    /// # Errors
    /// The job, when the line is full or not in use.
    pub fn put(&mut self, number: usize, work: u64, job: T) -> Result<(), T> {
        let own = self.own_places(number);
        let free = self.waiting_max.saturating_sub(self.waiting);
        let Some(line) = self.lines.get_mut(number).filter(|line| line.share > 0) else { return Err(job) };
        if line.jobs.len() >= own.max(free) {
            return Err(job);
        }
        if line.jobs.is_empty() {
            self.turns.push_back(number);
        }
        line.jobs.push_back((work.min(self.quantum), job));
        self.waiting += 1;
        Ok(())
    }

    /// Places that are this line's alone.
    fn own_places(&self, number: usize) -> usize {
        let share = self.lines.get(number).map_or(0, |line| line.share);
        let part = self.waiting_max as u64 * u64::from(share) / self.shares.max(1);
        usize::try_from(part).unwrap_or(usize::MAX).max(PLACES_MIN)
    }

    /// The next job: of the line whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        loop {
            let number = *self.turns.front()?;
            let quantum = self.quantum;
            let line = self.lines.get_mut(number)?;
            if !line.in_turn {
                line.in_turn = true;
                line.credit += quantum * line.weight();
            }
            match line.jobs.front() {
                Some((work, _)) if *work > line.credit => {
                    line.in_turn = false;
                    self.turns.rotate_left(1);
                }
                // An empty line stands in no turn.
                None => drop(self.turns.pop_front()),
                Some(_) => {
                    let (work, job) = line.jobs.pop_front()?;
                    line.credit -= work;
                    self.waiting -= 1;
                    if line.jobs.is_empty() {
                        // Credit is not saved up: who comes back later has no more than a turn.
                        (line.credit, line.in_turn) = (0, false);
                        if line.jobs.capacity() > 4 * KEPT {
                            line.jobs.shrink_to(KEPT);
                        }
                        self.turns.pop_front();
                    }
                    return Some(job);
                }
            }
        }
    }

    /// Everything that waits.
    pub fn take_all(&mut self) -> Vec<T> {
        self.turns.clear();
        self.waiting = 0;
        let empty = |line: &mut Line<T>| {
            (line.credit, line.in_turn) = (0, false);
            std::mem::take(&mut line.jobs)
        };
        self.lines.iter_mut().flat_map(empty).map(|(_, job)| job).collect()
    }
}
