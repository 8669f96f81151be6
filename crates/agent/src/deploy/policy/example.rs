//! The file that `bulla agent policy init` writes.

/// An example policy with every kind of rule in comments. It allows nothing.
pub const EXAMPLE: &str = r##"# What the certificate server may have done on this host. The agent refuses everything that is not named here.
# Only root or the agent's user may write this file. Changes count from the next job on.
#
#   bulla agent policy check      shows what the targets of this agent need, and the lines that are missing here
# The documentation of every key: docs/agent.md, "Policy of the host".

# Folders that the commands write, such as /run and /var/log/nginx. With this line the agent and its commands can write in no other
# folders than these and those of the files below (Landlock). It counts from the next start of the agent.
#writable_folders = ["/run", "/var/log/nginx"]

# Files that may be written: a path, a folder (it ends in "/"), or a glob (*, ?, and ** for any number of folders).
# A file keeps the owner and group it has; a new file gets the agent's. Others have to be named.
#[[files]]
#path = "/etc/nginx/tls/*.pem"
#owners = ["root"]
#groups = ["root"]
#mode = "0640"

# Commands that may be run, without a shell and with a clean environment. A target refers to a command by its name
# ("reload": "nginx-reload"), or gives exactly the same words.
#[commands.nginx-test]
#argv = ["nginx", "-t"]
#user = "root"

#[commands.nginx-reload]
#argv = ["nginx", "-s", "reload"]
#user = "root"
#timeout_s = 60
#environment = { TZ = "UTC" }

# Endpoints that may be asked which certificate they serve: HOST:PORT, where HOST is a name, an address or a network.
#[[verify]]
#address = "127.0.0.1:443"
"##;

#[cfg(test)]
mod tests {
    use super::super::rules::Rules;
    use super::*;

    #[test]
    fn example_policy_allows_nothing_and_is_valid_when_uncommented() {
        assert!(toml::from_str::<toml::Table>(EXAMPLE).unwrap().is_empty());
        let bare =
            |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        let text: String = EXAMPLE.lines().filter_map(bare).map(|line| line + "\n").collect();
        assert!(text.contains("[commands.nginx-reload]\nargv"), "{text}");
        Rules::parse(&text).unwrap();
    }
}
