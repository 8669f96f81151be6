//! `[client]`: the server that commands use.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layers::{Key, Kind, Layers, UnknownVariables};
use crate::exit::Outcome;

/// Name of the profile for server certificates that the first start creates.
pub const FIRST_PROFILE: &str = "default";

/// The keys that [`ClientConfiguration::load`] reads. `bulla config show` explains them.
const KEYS: &[Key] = &[
    ("client.url", Kind::Text, ""),
    ("client.credential_url", Kind::Text, ""),
    ("client.token_file", Kind::Text, ""),
    ("client.ca_file", Kind::Text, ""),
    ("server.core_dumps", Kind::Boolean, ""),
];

/// Configuration section `[client]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// The credential store's URL; empty: the store on this machine.
    pub credential_url: String,
    /// The server's URL; empty: the server on this machine.
    pub url: String,
    /// File with the API token; empty: the admin token of the server on this machine.
    pub token_file: PathBuf,
    /// File of trust anchors for the server (PEM); empty: the root of the server on this machine.
    pub ca_file: PathBuf,
}

/// The part of the configuration that client commands read.
#[derive(Clone, Debug, Default)]
pub struct ClientConfiguration {
    /// Configuration section `[client]`.
    pub client: ClientSettings,
    /// `server.core_dumps`: whether a crash may write a core dump.
    pub core_dumps: bool,
}

/// Sections of the file for [`ClientConfiguration`]. The file may have other sections, for other programs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sections {
    client: ClientSettings,
    server: Server,
}

/// The part of `[server]` that client commands read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Server {
    core_dumps: bool,
}

impl ClientConfiguration {
    /// Reads the configuration file (`given`, else the default file if it exists) and the environment. Other sections are not
    /// checked.
    pub fn load(given: Option<&Path>) -> Outcome<Self> {
        let (sections, _) = Layers::load::<Sections>(given, KEYS, UnknownVariables::Ignored)?;
        Ok(Self { client: sections.client, core_dumps: sections.server.core_dumps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sections_and_their_variables_are_ignored() {
        let file =
            "[server]\nlisten = \"x\"\ncore_dumps = true\n[client]\nurl = \"https://a\"\n[scan]\nport = 1\n";
        let read = |file: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            Layers::from_parts::<Sections>(
                Some(("f".into(), file.to_owned())),
                variables,
                KEYS,
                UnknownVariables::Ignored,
            )
        };
        let (sections, layers) =
            read(file, &[("BULLA_CLIENT_URL", "https://b"), ("BULLA_SERVER_LISTEN", "y")]).unwrap();
        assert!(sections.server.core_dumps);
        assert_eq!(sections.client.url, "https://b");
        assert_eq!(layers.origin("client.url").to_string(), "BULLA_CLIENT_URL");
        assert!(read("[client]\nurls = 1\n", &[]).is_err(), "a slip in its own section");
    }
}
