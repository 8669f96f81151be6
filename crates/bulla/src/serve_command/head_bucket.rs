//! An S3 bucket with object lock that stores signed heads of the audit log, as a witness.

#[cfg(not(feature = "aws"))]
pub(super) use none::witness;
#[cfg(feature = "aws")]
pub(super) use some::witness;

#[cfg(not(feature = "aws"))]
mod none {
    use std::sync::Arc;

    use audit::Witness;
    use cli::exit::{Outcome, Problem};
    use store::Clock;

    use crate::config::WitnessSettings;

    /// Rejects a configured bucket, because this build has no AWS client.
    pub(crate) async fn witness(settings: &WitnessSettings, _: &Clock) -> Outcome<Option<Arc<dyn Witness>>> {
        if settings.s3_bucket.is_empty() {
            return Ok(None);
        }
        let what = "audit.witness.s3_bucket names a bucket, but this build lacks the feature aws";
        Err(Problem::usage(what).hint("build with `--features aws`, or leave audit.witness.s3_bucket empty"))
    }
}

#[cfg(feature = "aws")]
mod some {
    use std::sync::Arc;
    use std::time::Duration;

    use api::audit::SignedHead;
    use audit::Witness;
    use cli::exit::{Exit, Outcome, Problem, chain};
    use cloud_apis::auth::aws::AwsOptions;
    use cloud_apis::auth::http::HttpClient;
    use cloud_apis::object_lock::{LockMode, LockedBucket};
    use futures_util::future::{BoxFuture, FutureExt};
    use store::Clock;
    use x509::Fingerprint;

    use crate::config::WitnessSettings;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Returns the bucket of the configuration as a witness, if there is one.
    pub(crate) async fn witness(
        settings: &WitnessSettings,
        clock: &Clock,
    ) -> Outcome<Option<Arc<dyn Witness>>> {
        if settings.s3_bucket.is_empty() {
            return Ok(None);
        }
        let http = HttpClient::new(&[]).map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
        let endpoint = Some(settings.s3_endpoint.clone()).filter(|url| !url.is_empty());
        let options = AwsOptions { endpoint, credentials: None };
        let bucket = LockedBucket::new(&settings.s3_bucket, &settings.s3_region, &options, http).await;
        Ok(Some(Arc::new(HeadBucket {
            bucket,
            prefix: settings.s3_prefix.clone(),
            mode: settings.s3_mode.parse().unwrap_or_default(),
            locked_for: DAY * settings.s3_retention_days,
            clock: clock.clone(),
        })))
    }

    /// A bucket in which each head is an object that no account may delete or replace before its lock ends.
    #[derive(Debug)]
    struct HeadBucket {
        bucket: LockedBucket,
        prefix: String,
        mode: LockMode,
        locked_for: Duration,
        clock: Clock,
    }

    impl Witness for HeadBucket {
        fn name(&self) -> &'static str {
            "s3"
        }

        fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>> {
            async move {
                let key = key_of(&self.prefix, head)?;
                let now = Duration::from_micros(u64::try_from(self.clock.now_us()).unwrap_or_default());
                let until = std::time::UNIX_EPOCH + now + self.locked_for;
                let content = format!("{head}\n").into_bytes();
                let put = self.bucket.put(&key, content, self.mode, until).await;
                put.map_err(|error| format!("{key}: {}", chain(&error)))
            }
            .boxed()
        }
    }

    /// Returns the object name of a head. The name begins with the head's number, so that a listing is in order. A part of the
    /// head's hash follows, so that two heads with the same number are two objects.
    fn key_of(prefix: &str, head: &str) -> Result<String, String> {
        let sequence = serde_json::from_str::<SignedHead>(head).map_err(|error| error.to_string())?.sequence;
        let hash = Fingerprint::of(head.as_bytes()).to_string();
        Ok(format!("{prefix}{sequence:020}-{}.json", hash.get(..16).unwrap_or(&hash)))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn objects_are_named_by_number_and_content_of_the_head() {
            let head = |sequence: u64, at: &str| {
                serde_json::json!({
                    "format": "bulla-audit-head-1", "server": "s", "sequence": sequence, "at": at, "previous": "p",
                    "heads": [], "segments": 0, "segment": "0", "key": "k",
                })
                .to_string()
            };
            let key = |sequence, at| key_of("bulla/", &head(sequence, at)).unwrap();
            assert!(key(7, "x").starts_with("bulla/00000000000000000007-") && key(7, "x").ends_with(".json"));
            assert!(key(9, "x") < key(10, "x"), "a listing has them in order");
            assert_ne!(key(7, "x"), key(7, "y"), "a second head with the same number is another object");
            assert!(key_of("", "{}").is_err());
        }
    }
}
