//! The initial content of a new installation: a root, an issuing CA and profiles. Every step can be repeated after an interruption.

use std::sync::Arc;

use authority::Authority;
use authority::names::{DnsRule, NameRules, SuffixRule};
use authority::profile::{KeyPurpose, Profile, Validity};
use authority::tree::{Ca, NewCa};
use cli::exit::{Exit, Outcome, Problem, chain};

/// The profile of certificates for servers.
pub(super) const SERVER: &str = cli::configuration::FIRST_PROFILE;

/// The profile of client certificates, for agents and other clients.
pub(super) const CLIENT: &str = "client";

const ACTOR: &str = "system:first-start";
const ROOT: &str = "root";
const ISSUING: &str = "issuing";
const DAY_S: i64 = 86_400;

/// Creates a root, an issuing authority and profiles if they are missing. If several servers start concurrently, one creates them
/// and the others find them. `first` means that no token exists yet. Existing objects then come from an interrupted start, and this
/// function creates the missing ones.
pub(super) async fn prepare(authority: &Authority, first: bool) -> Outcome<()> {
    let known = authority.cas().await.map_err(|error| failed(&error))?;
    let begun = first && known.iter().all(|ca| ca.name == ROOT);
    if known.is_empty() {
        ignore_name_taken(authority.create_root(&NewCa::root(ROOT, "CN=Bulla Root"), ACTOR).await)?;
    }
    if known.is_empty() || begun {
        let issuing = NewCa::intermediate(ISSUING, "CN=Bulla Issuing");
        ignore_name_taken(authority.create_intermediate(ROOT, &issuing, ACTOR).await)?;
    }
    let known = authority.profiles(None, 1).await.map_err(|error| failed(&error))?;
    if first || known.rows.is_empty() {
        for profile in [server_profile(), client_profile()] {
            // Revision 0 means: create only if it does not exist. A conflict with another server is not an error.
            match authority.put_profile(profile, Some(0), ACTOR).await {
                Ok(_) | Err(authority::profile::ProfileError::Stale(_)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }
    Ok(())
}

/// Returns the roots, for clients to trust.
pub(super) async fn root_pem(authority: &Authority) -> Outcome<String> {
    let all = authority.cas().await.map_err(|error| failed(&error))?;
    let roots = all.iter().filter(|ca| ca.is_root());
    Ok(roots.map(|ca| x509::pem::encode("CERTIFICATE", &ca.certificate.der)).collect())
}

fn ignore_name_taken(result: Result<Arc<Ca>, authority::tree::NewCaError>) -> Outcome<()> {
    match result {
        Ok(_) | Err(authority::tree::NewCaError::NameTaken { .. }) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &dyn std::error::Error) -> Problem {
    Problem::new(Exit::Inventory, format_args!("cannot create the CAs: {}", chain(error)))
        .hint("check the database and the master key, then start again")
}

/// Allows every name. Operators can restrict this with `bulla profile put`.
fn unrestricted_name_rules() -> NameRules {
    let all = SuffixRule {
        suffix: String::new(),
        itself: true,
        depth_max: u8::MAX,
        wildcards: true,
        wildcard_depth_min: 2,
        wildcard_depth_max: u8::MAX,
    };
    let networks = ["0.0.0.0/0", "::/0"].iter().filter_map(|text| text.parse().ok()).collect();
    NameRules { dns_allowed: vec![DnsRule::Suffix(all)], ip_allowed: networks, ..NameRules::default() }
}

fn server_profile() -> Profile {
    Profile {
        description: "TLS servers; any name. Restrict it to your domains.".to_owned(),
        ..Profile::for_servers(SERVER, unrestricted_name_rules())
    }
}

fn client_profile() -> Profile {
    Profile {
        description: "Client certificates: agents and services.".to_owned(),
        extended_key_usage: vec![KeyPurpose::client_auth()],
        validity: Validity {
            default_seconds: 30 * DAY_S,
            max_seconds: Some(90 * DAY_S),
            backdate_seconds: 60,
        },
        ..Profile::for_servers(CLIENT, unrestricted_name_rules())
    }
}
