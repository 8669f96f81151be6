//! Protection against a signature library that may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use keys::{SignError, Slice};

/// Signs the jobs with `sign`, and catches panics. If a call with several jobs panics, each job is tried alone, so that only the
/// faulty job fails.
pub(super) fn attempt<J>(jobs: &[J], sign: impl Copy + Fn(&[J]) -> Slice) -> Slice {
    if let Ok(made) = catch_unwind(AssertUnwindSafe(|| sign(jobs))) {
        return made;
    }
    tracing::error!("a signature panicked");
    let signed = match jobs {
        [_, _, ..] => jobs.chunks(1).flat_map(|one| attempt(one, sign).signed).collect(),
        _ => vec![Err(SignError::Failed("the cryptographic library panicked".to_owned()))],
    };
    Slice { signed, batched: 0, faulty: 0 }
}

/// Prepares each key, and catches panics, so that one key does not affect the others.
pub(super) fn attempt_each<K>(keys: &[K], prepare: fn(&K)) {
    for key in keys {
        if catch_unwind(AssertUnwindSafe(|| prepare(key))).is_err() {
            tracing::error!("preparing a key panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_fails_only_the_job_that_caused_it() {
        fn sign(jobs: &[u8]) -> Slice {
            assert!(!jobs.contains(&3), "a fault of the library");
            made(jobs.iter().map(|job| Ok(vec![*job])).collect(), jobs.len())
        }
        fn made(signed: Vec<Result<Vec<u8>, SignError>>, batched: usize) -> Slice {
            Slice { signed, batched, faulty: 0 }
        }
        assert_eq!(attempt(&[1, 2], sign), made(vec![Ok(vec![1]), Ok(vec![2])], 2));
        let failed = || Err(SignError::Failed("the cryptographic library panicked".to_owned()));
        assert_eq!(attempt(&[1, 3, 2], sign), made(vec![Ok(vec![1]), failed(), Ok(vec![2])], 0));
        assert_eq!(attempt(&[3], sign), made(vec![failed()], 0));
    }
}
