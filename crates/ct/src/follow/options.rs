//! Options for following a Certificate Transparency log.

use std::time::Duration;

use outbound::rate::{Pace, Rate};

/// Start position in a log that was not followed before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartPosition {
    /// New entries only. Search services cover older ones.
    Head,
    /// The first entry. A large log has terabytes.
    Beginning,
}

/// Options for following a log.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// Start position in a new log.
    pub start: StartPosition,
    /// Tiles fetched concurrently. Each may take [`crate::entry::DATA_TILE_BYTES_MAX`], usually a megabyte.
    pub tiles_at_once: usize,
    /// Maximum tiles of one step, which the caller stores in one transaction.
    pub tiles_per_step: usize,
    /// Time for which entries may wait in a partial tile before it is read. Reading partial tiles immediately would fetch them
    /// again with every checkpoint.
    pub partial_wait_max: Duration,
    /// Rate limit of requests.
    pub pace: Pace,
    /// Timeout of one response.
    pub answer_limit: Duration,
    /// Longest wait for the rate limit. A step that would wait longer fails instead.
    pub wait_max: Duration,
    /// Maximum age of the newest checkpoint: the log's maximum merge delay (RFC 6962 section 3), a day for most logs.
    pub merge_delay: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            start: StartPosition::Head,
            tiles_at_once: 4,
            tiles_per_step: 64,
            // The largest logs fill a tile in two seconds, the smallest in hours.
            partial_wait_max: Duration::from_secs(300),
            // The highest growth seen in a log is 12 million entries a day, or 0.5 tiles a second. This rate lets a follower catch
            // up.
            pace: Pace { per_second: Some(Rate::per_second(20).with_burst(10)), per_minute: None },
            answer_limit: Duration::from_secs(30),
            wait_max: Duration::from_secs(60),
            merge_delay: Duration::from_secs(86_400),
        }
    }
}
