//! `bulla proxy replay`: sends a recent request of the proxy in the server's process again, by the API.

use api::proxy::ReplayPlanView;
use clap::Args;
use cli::GlobalArgs;
use cli::connection::{Client, Output, ServerArgs, read_as, show_one};
use cli::control::{Consent, confirm, segment};
use cli::exit::{Exit, Outcome, Problem};
use cli::terminal::clean;
use reqwest::Method;

use crate::config::Configuration;

/// Arguments of `bulla proxy replay`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    /// The id of the request: GET /api/v1/proxy/requests, or the page of the request in the console
    id: String,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `bulla proxy replay`.
pub(super) async fn run(args: &ReplayArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let settings = Configuration::load_client_settings(global)?;
    let client = Client::open(&args.server, &settings.client)?;
    let path = format!("/api/v1/proxy/requests/{}/replay", segment(&args.id));
    let plan: ReplayPlanView = read_as(&client.get(&path, &()).await?)?;
    if let Some(refused) = &plan.refused {
        return Err(Problem::new(
            Exit::Refused,
            format_args!("the proxy cannot replay this request: {refused}"),
        )
        .hint("ask the client to send the request again"));
    }
    if !args.consent.is_given() {
        confirm(&question(&plan))?;
    }
    show_one(&client.send(Method::POST, &path, None).await?, &args.show)?;
    Ok(Exit::Ok)
}

fn question(plan: &ReplayPlanView) -> String {
    let text = |text: &Option<String>| clean(text.as_deref().unwrap_or("none")).into_owned();
    let credentials = match plan.credentials.is_empty() {
        true => "no credential".to_owned(),
        false => clean(&plan.credentials.join(", ")).into_owned(),
    };
    format!(
        "send {} {} again as the identity {}, with {credentials}",
        text(&plan.method),
        text(&plan.url),
        text(&plan.identity)
    )
}
