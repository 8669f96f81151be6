//! `bulla key records`: verifies that records of signatures are unchanged.

use std::path::PathBuf;

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem, chain};
use keyless::records::{SegmentHead, verify};

/// Arguments of `bulla key records`.
#[derive(Args, Debug)]
pub(super) struct RecordsArgs {
    /// The folder of records: `keys.records`, or for a node `records` in the node's folder
    folder: PathBuf,
    /// SHA-256 of a head from the service's log (`head`): the folder must contain that head
    #[arg(long, value_name = "SHA256")]
    head: Option<String>,
}

/// Runs `bulla key records`.
pub(super) async fn run(args: &RecordsArgs, _global: &GlobalArgs) -> Outcome<Exit> {
    let folder = args.folder.clone();
    let verified = tokio::task::spawn_blocking(move || verify(&folder)).await;
    let verified = verified.map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
    let (found, heads) = verified.map_err(|error| {
        Problem::new(Exit::Refused, chain(&error))
            .hint("compare with the heads in the log of the service, if it was sent to another host")
    })?;
    if let Some(wanted) = &args.head
        && !heads.iter().any(|head| head.hash() == wanted.to_ascii_lowercase())
    {
        return Err(Problem::new(
            Exit::Refused,
            format_args!("no head of this folder has the hash {wanted}"),
        )
        .hint("the folder belongs to another node, or its heads were regenerated"));
    }
    let last = heads.last().map_or_else(|| "none".to_owned(), SegmentHead::hash);
    cli::exit::print(&format!(
        "verified {} segments with {} records against their heads; of {} older segments only the heads are \
         retained\nnewest head: {last}\n",
        found.segments, found.records, found.pruned
    ))?;
    Ok(Exit::Ok)
}
