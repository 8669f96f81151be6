//! Publication of dns-01 records by a program or a service of the operator.

use std::time::{Duration, Instant};

use callout::{HttpClient, HttpConfig, Request, SigningKey};
use futures_util::future::{BoxFuture, FutureExt};
use keys::Secret;
use outbound::resolve::Resolver;
use serde_json::json;

use super::publisher::{PublishError, Publisher, TxtRecord};
use crate::command::{Command, CommandOutput};
use crate::error::IssuerError;
use crate::program_name::ProgramName;
use crate::programs::Programs;

/// A hook that runs `argv… present NAME VALUE` and `argv… cleanup NAME VALUE`. Exit code 0 means success.
#[derive(Debug)]
pub(super) struct Program(Command);

impl Program {
    pub(super) fn new(
        programs: &Programs,
        name: &ProgramName,
        seconds: Option<u32>,
    ) -> Result<Self, IssuerError> {
        let limit = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Ok(Self(programs.get(name)?.with_timeout(limit)))
    }

    async fn run(&self, action: &str, record: &TxtRecord, deadline: Instant) -> Result<(), PublishError> {
        let arguments = [action, &record.name, &record.value];
        let run = self.0.run(&arguments, &[], &[], deadline).await;
        match run.map_err(|error| PublishError(error.to_string()))? {
            CommandOutput { code: 0, .. } => Ok(()),
            CommandOutput { code, errors, .. } => {
                Err(PublishError(format!("the program exited with code {code}: {errors}")))
            }
        }
    }
}

impl Publisher for Program {
    fn publish<'a>(
        &'a self,
        record: &'a TxtRecord,
        _ttl: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.run("present", record, deadline).boxed()
    }

    fn remove<'a>(
        &'a self,
        record: &'a TxtRecord,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.run("cleanup", record, deadline).boxed()
    }
}

/// A hook that sends a POST of `{"action", "name", "value", "ttl"}`, signed like webhooks.
#[derive(Debug)]
pub(super) struct Service {
    http: HttpClient,
    url: String,
    key: SigningKey,
}

impl Service {
    pub(super) fn new(
        url: &str,
        secret: &Secret,
        http: &HttpConfig,
        resolver: &Resolver,
    ) -> Result<Self, IssuerError> {
        let http = HttpClient::new(http, resolver)?;
        http.guard().url(url).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        Ok(Self { http, url: url.to_owned(), key: SigningKey::new(secret)? })
    }

    async fn post(
        &self,
        action: &str,
        record: &TxtRecord,
        ttl: u32,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        let body = json!({ "action": action, "name": record.name, "value": record.value, "ttl": ttl });
        let request = self.key.sign(Request::post_json(&self.url, &body));
        let sent = self.http.send(request, deadline, "the DNS service publishes the record").await;
        let reply = sent.map_err(|error| PublishError(error.to_string()))?;
        if reply.status.is_success() {
            return Ok(());
        }
        Err(PublishError(format!("the DNS service responded {}: {}", reply.status.as_u16(), reply.excerpt())))
    }
}

impl Publisher for Service {
    fn publish<'a>(
        &'a self,
        record: &'a TxtRecord,
        ttl: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.post("present", record, ttl, deadline).boxed()
    }

    fn remove<'a>(
        &'a self,
        record: &'a TxtRecord,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.post("cleanup", record, 0, deadline).boxed()
    }
}
