//! One-time tokens for credentials: `bulla credential wrap` and `bulla credential unwrap`.

use std::time::Duration;

use api::credhub::{UnwrapRequest, UnwrapView, WrapRequest};
use clap::Args;
use keys::SecretJson;
use reqwest::Method;
use zeroize::Zeroizing;

use super::value::{print_value, read_value, show_value};
use crate::connection::{Client, Output, show_one};
use crate::exit::{Exit, Outcome};
use crate::units;

/// Arguments of `bulla credential wrap`.
#[derive(Args, Debug)]
pub(super) struct WrapArgs {
    /// The credential's name
    name: String,
    /// Lifetime of the token, at most a day
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration)]
    ttl: Duration,
    #[command(flatten)]
    show: Output,
}

/// Arguments of `bulla credential unwrap`.
#[derive(Args, Debug)]
pub(super) struct UnwrapArgs {
    /// The token, or - for standard input: other users of this machine can see arguments
    #[arg(default_value = "-")]
    token: String,
    /// Only this field of the value: password, private_key
    #[arg(long, short, value_name = "FIELD")]
    key: Option<String>,
    /// Print only the value
    #[arg(long)]
    value: bool,
    #[command(flatten)]
    show: Output,
}

impl WrapArgs {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        let request = WrapRequest { name: self.name.clone(), ttl_seconds: Some(units::seconds(self.ttl)) };
        show_one(&client.submit(Method::POST, "/api/v1/wrap", &request).await?, &self.show)?;
        Ok(Exit::Ok)
    }
}

impl UnwrapArgs {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        let token = match self.token.as_str() {
            "-" => read_value(std::path::Path::new("-"))?,
            given => Zeroizing::new(given.to_owned()),
        };
        let request = UnwrapRequest { token: token.trim().to_owned() };
        let read: UnwrapView<SecretJson> = client.exchange(Method::POST, "/api/v1/unwrap", &request).await?;
        if !self.value && self.key.is_none() {
            return show_value(&read.kind, &read, &self.show);
        }
        print_value(&read.value, self.key.as_deref(), &read.name)
    }
}
