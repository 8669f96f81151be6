//! Names of objects on the server, for the completion scripts of shells.

use std::time::Duration;

use api::certificates::CertificateFilter;
use api::credhub::{DataQuery, FoundCredentials};
use api::listing::{Listing, PageQuery};
use clap::{Args, Command};
use serde::Deserialize;

use crate::configuration::ClientSettings;
use crate::connection::{Client, ServerArgs};
use crate::exit::{Exit, Outcome, print};

/// Timeout for reading names from the server. A shell waits during this time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of names in one completion.
const NAMES_MAX: u32 = 200;

/// Minimum number of typed characters for a search on the server.
const SEARCH_MIN: usize = 3;

const CERTIFICATES: &str = "/api/v1/certificates";
const CREDENTIALS: &str = "/api/v1/data";

/// Commands and options that take an object's name, each with the API path that lists these names.
const LISTINGS: [(&str, &str); 11] = [
    ("agent", "/api/v1/agents"),
    ("cert", CERTIFICATES),
    ("credential", CREDENTIALS),
    ("issuer", "/api/v1/issuers"),
    ("policy", "/api/v1/policies"),
    ("profile", "/api/v1/profiles"),
    ("target", "/api/v1/targets"),
    ("team", "/api/v1/teams"),
    ("token", "/api/v1/tokens"),
    ("user", "/api/v1/users"),
    ("watch", "/api/v1/watches"),
];

/// The arguments that name an object of the command's noun.
const NAMES: [&str; 7] = ["name", "names", "id", "ids", "given", "certificate", "certificates"];

/// Arguments of `bulla complete`, which shell completion scripts call.
#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// The words after the program's name; the last one is completed
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// An object in a listing, of which only the name is read.
#[derive(Deserialize)]
struct Named {
    name: String,
}

impl CompleteArgs {
    /// Prints the object names that complete the last word, one per line. Prints nothing if the server does not respond in time.
    pub async fn run(&self, mut program: Command, settings: &ClientSettings) -> Outcome<Exit> {
        program.build();
        let Some((last, before)) = self.words.split_last() else { return Ok(Exit::Ok) };
        if let Some(path) = listing_of(&program, before)
            && let Ok(Ok(names)) = tokio::time::timeout(TIMEOUT, names(settings, path, last)).await
        {
            let names: Vec<String> = names.into_iter().filter(|name| is_plain(name)).collect();
            if !names.is_empty() {
                print(&names.join("\n"))?;
            }
        }
        Ok(Exit::Ok)
    }
}

/// Returns the listing with the names that may follow `words`.
fn listing_of(program: &Command, words: &[String]) -> Option<&'static str> {
    let listing = |name: &str| LISTINGS.iter().find(|(of, _)| *of == name).map(|(_, path)| *path);
    let (mut command, mut commands, mut positionals) = (program, Vec::new(), 0);
    let mut option = None;
    for word in words {
        if option.take().is_some() {
            continue;
        }
        if let Some(name) = word.strip_prefix("--") {
            option = command
                .get_arguments()
                .chain(program.get_arguments())
                .find(|arg| arg.get_long() == Some(name) && arg.get_action().takes_values());
        } else if let Some(sub) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = sub;
            commands.push(sub.get_name());
        } else if !word.starts_with('-') {
            positionals += 1;
        }
    }
    if let Some(option) = option {
        let name = option.get_long()?;
        return listing(name.strip_prefix("by-").unwrap_or(name));
    }
    let [noun, verb] = commands[..] else { return None };
    let all: Vec<_> = command.get_positionals().collect();
    let next = all
        .get(positionals)
        .or_else(|| all.last().filter(|last| last.get_action().takes_values() && is_list(last)))?;
    let names_an_object = NAMES.contains(&next.get_id().as_str());
    if names_an_object && !matches!(verb, "create" | "add") { listing(noun) } else { None }
}

/// Returns whether an argument takes any number of values.
fn is_list(argument: &clap::Arg) -> bool {
    argument.get_num_args().is_some_and(|count| count.max_values() > 1)
        || matches!(argument.get_action(), clap::ArgAction::Append)
}

/// Returns the names in a listing that begin with `start`.
async fn names(settings: &ClientSettings, path: &str, start: &str) -> Outcome<Vec<String>> {
    let server = ServerArgs::default();
    let found: Vec<Named> = if path == CREDENTIALS {
        let client = Client::open_credentials(&server, None, settings)?;
        let query = DataQuery { path: Some("/".to_owned()), ..DataQuery::default() };
        client.fetch::<FoundCredentials<Named>>(path, &query).await?.credentials
    } else {
        let client = Client::open(&server, settings)?;
        let page = PageQuery { limit: Some(NAMES_MAX), cursor: None, fields: None };
        let contains = (path == CERTIFICATES && start.len() >= SEARCH_MIN).then(|| start.to_owned());
        let filter = CertificateFilter { contains, ..CertificateFilter::default() };
        client.fetch::<Listing<Named>>(path, &page.of(&filter)).await?.items
    };
    let names = found.into_iter().map(|one| one.name).filter(|name| name.starts_with(start));
    Ok(names.take(NAMES_MAX as usize).collect())
}

/// Returns whether a shell reads the name as one word without expansion. Names come from the server, and are not trusted.
fn is_plain(name: &str) -> bool {
    name.chars().all(|one| one.is_ascii_alphanumeric() || "-._/@:+".contains(one))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn program() -> Command {
        let show = Command::new("show")
            .arg(Arg::new("name"))
            .arg(Arg::new("team").long("team"))
            .arg(Arg::new("quiet").long("quiet").action(clap::ArgAction::SetTrue));
        let create = Command::new("create").arg(Arg::new("name"));
        let renew = Command::new("renew").arg(Arg::new("names").num_args(1..));
        let cert = Command::new("cert").visible_alias("certificate").subcommands([show, create, renew]);
        let channel = Command::new("channel").subcommand(Command::new("show").arg(Arg::new("name")));
        Command::new("it")
            .arg(Arg::new("config").long("config").global(true))
            .subcommands([cert, Command::new("alert").subcommand(channel)])
    }

    #[test]
    fn words_decide_whose_names_follow() {
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            listing_of(&program(), &words)
        };
        for line in [
            "cert show",
            "certificate show",
            "--config x cert show",
            "cert show --quiet",
            "cert show --team a",
            "cert renew a b",
        ] {
            assert_eq!(of(line), Some(CERTIFICATES), "{line}");
        }
        assert_eq!(of("cert show --team"), Some("/api/v1/teams"));
        for line in
            ["", "cert", "cert create", "cert show a", "cert show --config", "alert channel show", "x y"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn names_follow_the_commands_for_objects() {
        use crate::control::{CertificateCommand, TokenCommand, WatchCommand};
        use clap::Subcommand as _;
        let mut program = Command::new("it").subcommands([
            CertificateCommand::augment_subcommands(Command::new("cert")),
            TokenCommand::augment_subcommands(Command::new("token")),
            WatchCommand::augment_subcommands(Command::new("watch")),
        ]);
        program.build();
        for (line, path) in [
            ("cert show", CERTIFICATES),
            ("cert renew", CERTIFICATES),
            ("cert export", CERTIFICATES),
            ("cert list --by-profile", "/api/v1/profiles"),
            ("token delete", "/api/v1/tokens"),
            ("watch run", "/api/v1/watches"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(listing_of(&program, &words), Some(path), "{line}");
        }
    }

    #[test]
    fn names_that_a_shell_would_expand_are_left_out() {
        assert!(is_plain("/team/db-1") && is_plain("www.example.net"));
        for name in ["$(id)", "a b", "*.example", "a;b", "`id`", "a\nb"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
