//! Signing by a library that may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use keys::SignError;

/// What [`keys::sign_slice`] says: a result a job, and how many were made in batches.
pub(super) type Made = (Vec<Result<Vec<u8>, SignError>>, usize);

/// Makes these by `sign`. A panic costs the worker nothing, and only the job that caused it an answer: where one of several panics,
/// each is made by itself.
pub(super) fn attempt<J>(jobs: &[J], sign: fn(&[J]) -> Made) -> Made {
    if let Ok(made) = catch_unwind(AssertUnwindSafe(|| sign(jobs))) {
        return made;
    }
    tracing::error!("a signature panicked");
    match jobs {
        [_, _, ..] => (jobs.chunks(1).flat_map(|one| attempt(one, sign).0).collect(), 0),
        _ => (vec![Err(SignError::Failed("the library panicked".to_owned()))], 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_costs_one_job_its_answer() {
        fn sign(jobs: &[u8]) -> Made {
            assert!(!jobs.contains(&3), "a fault of the library");
            (jobs.iter().map(|job| Ok(vec![*job])).collect(), jobs.len())
        }
        assert_eq!(attempt(&[1, 2], sign), (vec![Ok(vec![1]), Ok(vec![2])], 2));
        let failed = || Err(SignError::Failed("the library panicked".to_owned()));
        assert_eq!(attempt(&[1, 3, 2], sign), (vec![Ok(vec![1]), failed(), Ok(vec![2])], 0));
        assert_eq!(attempt(&[3], sign), (vec![failed()], 0));
    }
}
