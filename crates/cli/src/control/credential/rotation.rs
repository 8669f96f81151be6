//! Automatic rotation of credentials: policies, schedule, hooks.

use std::path::PathBuf;
use std::time::Duration;

use api::credhub::{
    HookQuery, HookRequest, HookView, PlannedView, RotateRequest, RotationPolicyRequest, RotationPolicyView,
    RotationQuery,
};
use clap::{Args, Subcommand};
use reqwest::Method;

use super::value::read_value;
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::units;

const POLICIES: &str = "/api/v1/rotation-policies";
const HOOKS: &str = "/api/v1/rotation-hooks";

/// Commands of `bulla credential rotation`.
#[derive(Debug, Subcommand)]
pub(super) enum RotationCommand {
    /// Set a rotation policy for a path. Without --every and --before-expiry: rotate certificates when a third of their lifetime
    /// remains
    Set(SetArgs),
    /// List rotation policies
    List(Listing),
    /// Remove a policy; the policy of a higher path then applies
    #[command(visible_alias = "delete")]
    Remove {
        /// Path of the policy
        path: String,
    },
    /// List scheduled rotations, next first
    Due {
        /// A name, or all names below a path
        #[arg(default_value = "/*")]
        path: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Rotate now: a name, or all scheduled ones below a path
    Now {
        /// A name, or all names below a path: /team/*
        path: String,
        #[command(flatten)]
        show: Output,
    },
    /// Hooks: services that are called before a value becomes current, or after
    #[command(subcommand)]
    Hook(HookCommand),
}

/// Arguments of `bulla credential rotation set`.
#[derive(Args, Debug)]
pub(super) struct SetArgs {
    /// A name, or all names below a path: /team/*; the most specific policy applies
    path: String,
    /// Interval of rotation: time since the last generation
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    every: Option<Duration>,
    /// Remaining lifetime of a certificate at rotation: 20d, or a fraction as 33%
    #[arg(long, value_name = "DURATION|PERCENT", value_parser = remaining_life)]
    before_expiry: Option<RemainingLife>,
    /// How long both certificates of an authority are trusted before each next step [default: 7d]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    overlap: Option<Duration>,
    /// The hook to call
    #[arg(long, value_name = "NAME")]
    hook: Option<String>,
    #[command(flatten)]
    show: Output,
}

/// Remaining lifetime at which a certificate is rotated: a duration, or a fraction of its lifetime.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RemainingLife {
    Time(Duration),
    Percent(u32),
}

fn remaining_life(text: &str) -> Result<RemainingLife, String> {
    match text.strip_suffix('%') {
        Some(part) => part
            .parse()
            .map(RemainingLife::Percent)
            .map_err(|_| format!("{text:?} is not a percentage: write 33%")),
        None => units::duration(text).map(RemainingLife::Time),
    }
}

impl SetArgs {
    fn request(&self) -> RotationPolicyRequest {
        let (time, percent) = match self.before_expiry {
            Some(RemainingLife::Time(time)) => (Some(units::seconds(time)), None),
            Some(RemainingLife::Percent(part)) => (None, Some(part)),
            None => (None, None),
        };
        RotationPolicyRequest {
            path: self.path.clone(),
            every_s: self.every.map(units::seconds),
            before_expiry_s: time,
            before_expiry_percent: percent,
            overlap_s: self.overlap.map(units::seconds),
            hook: self.hook.clone(),
        }
    }
}

/// Commands of `bulla credential rotation hook`.
#[derive(Debug, Subcommand)]
pub(super) enum HookCommand {
    /// Set a hook; every request to it is signed with its secret
    Set {
        /// Name of the hook
        name: String,
        /// URL of the hook
        #[arg(long, value_name = "URL")]
        url: String,
        /// The file with the secret, at least 16 bytes; - for standard input
        #[arg(long, value_name = "FILE", default_value = "-")]
        secret_file: PathBuf,
        /// Call the hook before a rotation: a response other than 2xx keeps the old value
        #[arg(long)]
        before: bool,
        /// Do not call the hook after a rotation
        #[arg(long)]
        not_after: bool,
        /// Certificates to trust for the hook instead of the system's, PEM
        #[arg(long, value_name = "FILE")]
        roots: Option<PathBuf>,
        #[command(flatten)]
        show: Output,
    },
    /// List hooks
    List(Listing),
    /// Remove a hook that no policy uses
    #[command(visible_alias = "delete")]
    Remove {
        /// Name of the hook
        name: String,
    },
}

impl RotationCommand {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const POLICY: Columns = columns!(
            RotationPolicyView:
            ("Path", path),
            ("Every (s)", every_s),
            ("Before end (s)", before_expiry_s),
            ("Before end (%)", before_expiry_percent),
            ("Overlap (s)", overlap_s),
            ("Hook", hook),
            ("Set by", set_by),
        );
        const DUE: Columns = columns!(
            PlannedView:
            ("Name", name),
            ("Type", kind as "type"),
            ("Due", due_at),
            ("Policy", policy),
            ("Step", step),
            ("By hand", set_by_hand),
            ("Failures", failures),
            ("Error", error),
        );
        let below = |path: &String| RotationQuery { path: Some(path.clone()) };
        match self {
            Self::Set(args) => {
                show_one(&client.submit(Method::PUT, POLICIES, &args.request()).await?, &args.show)?;
            }
            Self::List(listing) => listing.print(client, POLICIES, &(), POLICY).await?,
            Self::Remove { path } => {
                client.delete(POLICIES, &below(path)).await?;
            }
            Self::Due { path, listing } => {
                listing.print(client, "/api/v1/rotations", &below(path), DUE).await?;
            }
            Self::Now { path, show } => {
                let request = RotateRequest { path: path.clone() };
                show_one(&client.submit(Method::POST, "/api/v1/rotations/now", &request).await?, show)?;
            }
            Self::Hook(command) => command.run(client).await?,
        }
        Ok(Exit::Ok)
    }
}

impl HookCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const HOOK: Columns = columns!(
            HookView:
            ("Name", name),
            ("URL", url),
            ("Asked before", before),
            ("Told after", after),
            ("Set by", set_by),
        );
        match self {
            Self::Set { name, url, secret_file, before, not_after, roots, show } => {
                let secret = read_value(secret_file)?;
                let roots = roots.as_ref().map(|path| read_value(path)).transpose()?;
                let request = HookRequest {
                    name: name.clone(),
                    url: url.clone(),
                    secret: Some(secret.trim_end().to_owned()),
                    before: Some(*before),
                    after: Some(!not_after),
                    roots: roots.map(|roots| roots.to_string()),
                };
                show_one(&client.submit(Method::PUT, HOOKS, &request).await?, show)
            }
            Self::List(listing) => listing.print(client, HOOKS, &(), HOOK).await,
            Self::Remove { name } => {
                if name.is_empty() {
                    return Err(Problem::usage("the name of the hook is missing")
                        .hint("`bulla credential rotation hook list`"));
                }
                client.delete(HOOKS, &HookQuery { name: Some(name.clone()) }).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_life_is_parsed_as_duration_or_percentage() {
        assert_eq!(remaining_life("33%"), Ok(RemainingLife::Percent(33)));
        assert_eq!(remaining_life("20d"), Ok(RemainingLife::Time(Duration::from_secs(20 * 86_400))));
        assert!(remaining_life("33").is_err() && remaining_life("x%").is_err());
    }
}
