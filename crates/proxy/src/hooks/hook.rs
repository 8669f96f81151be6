//! One hook, and the list of all hooks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outbound::resolve::Resolver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::Channel;
use x509::HostOrIp;

use super::channel;
use super::fault::HookFault;
use super::options::{
    BODY_BYTES_MAX, BadHook, CALLS_MAX, HOOKS_MAX, HookOptions, HookProtocol, OnError, TIMEOUTS,
};
use crate::rule_index::HostPattern;
use crate::setting::{InvalidSetting, invalid};

/// A configured hook, with the channel to its service.
pub(super) struct Hook {
    pub(super) name: Arc<str>,
    pub(super) protocol: HookProtocol,
    hosts: Vec<HostPattern>,
    channel: Channel,
    pub(super) timeout: Duration,
    pub(super) on_error: OnError,
    pub(super) request_body: bool,
    pub(super) response_headers: bool,
    pub(super) response_body: bool,
    pub(super) body_bytes_max: usize,
    calls: Arc<Semaphore>,
}

impl Hook {
    fn new(options: &HookOptions, resolver: &Resolver) -> Result<Self, InvalidSetting> {
        check(options)?;
        Ok(Self {
            name: options.name.as_str().into(),
            protocol: options.protocol,
            hosts: HostPattern::read("host", &options.hosts)?,
            channel: channel::open(options, resolver)?,
            timeout: options.timeout,
            on_error: options.on_error,
            request_body: options.request_body,
            response_headers: options.response_headers,
            response_body: options.response_body,
            body_bytes_max: options.body_bytes_max,
            calls: Arc::new(Semaphore::new(options.calls_max)),
        })
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns whether the hook gets requests for one of these hosts.
    fn is_for(&self, hosts: &[&HostOrIp]) -> bool {
        self.hosts.is_empty()
            || hosts.iter().any(|host| self.hosts.iter().any(|pattern| pattern.is_for(host)))
    }

    /// Takes one of the hook's slots for concurrent requests. The caller holds the slot until the hook has finished with the
    /// request and its response.
    pub(super) fn slot(&self) -> Result<OwnedSemaphorePermit, HookFault> {
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| HookFault::Busy)
    }
}

/// Validates the settings of a hook that can be checked without a connection.
fn check(options: &HookOptions) -> Result<(), InvalidSetting> {
    let name = &options.name;
    if name.is_empty() || name.len() > 100 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("name", "1 to 100 visible ASCII characters are required", "name = \"dlp\""));
    }
    channel::Address::parse(&options.url)?;
    HostPattern::read("host", &options.hosts)?;
    if !TIMEOUTS.contains(&options.timeout) {
        return Err(invalid("timeout_ms", "it must be from 10 to 60000", "timeout_ms = 500"));
    }
    if !(1..=BODY_BYTES_MAX).contains(&options.body_bytes_max) {
        return Err(invalid("body_bytes_max", "it must be from 1 to 4194304", "body_bytes_max = 65536"));
    }
    if !(1..=CALLS_MAX).contains(&options.calls_max) {
        return Err(invalid("calls_max", "it must be from 1 to 10000", "calls_max = 256"));
    }
    let on_responses = options.response_headers || options.response_body;
    if options.protocol == HookProtocol::ExtAuthz && on_responses {
        let hint = "use protocol = \"ext_proc\", or remove response_headers and response_body";
        return Err(invalid("protocol", "ext_authz gets no responses", hint));
    }
    Ok(())
}

/// All hooks, in the order in which requests pass them.
#[derive(Clone, Default)]
pub struct Hooks(Arc<[Arc<Hook>]>);

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|hook| &hook.name)).finish()
    }
}

impl Hooks {
    /// Checks hooks without opening a connection.
    ///
    /// # Errors
    /// [`BadHook`]
    pub fn check(all: &[HookOptions]) -> Result<(), BadHook> {
        for (index, options) in all.iter().enumerate() {
            let bad = |wrong| Err(BadHook::of(&options.name, wrong));
            if index >= HOOKS_MAX {
                return bad(invalid(
                    "name",
                    format!("more than {HOOKS_MAX} hooks"),
                    "combine hooks in one service",
                ));
            }
            if all[..index].iter().any(|other| other.name == options.name) {
                return bad(invalid("name", "another hook has this name", "give each hook its own name"));
            }
            check(options).map_err(|wrong| BadHook::of(&options.name, wrong))?;
        }
        Ok(())
    }

    /// Creates the hooks. Their connections are opened by the first request. Must be called on a runtime.
    ///
    /// # Errors
    /// [`BadHook`]
    pub(crate) fn new(all: &[HookOptions], resolver: &Resolver) -> Result<Self, BadHook> {
        Self::check(all)?;
        let hook = |options: &HookOptions| {
            Hook::new(options, resolver).map(Arc::new).map_err(|wrong| BadHook::of(&options.name, wrong))
        };
        Ok(Self(all.iter().map(hook).collect::<Result<_, _>>()?))
    }

    /// Returns whether there are no hooks.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the hooks of a request for any of these hosts.
    pub(super) fn of(&self, hosts: &[&HostOrIp]) -> Vec<Arc<Hook>> {
        self.0.iter().filter(|hook| hook.is_for(hosts)).cloned().collect()
    }
}
