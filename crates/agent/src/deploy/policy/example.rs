//! The file that `bulla agent policy init` writes.

/// An example policy with every kind of rule in comments. It allows nothing.
pub const EXAMPLE: &str = r##"# What the server may do on this host. The agent refuses everything that this file does not allow.
# Only root or the agent's user may write this file. Changes apply from the next job.
#
#   bulla agent policy check      shows what the targets of this agent need, and the lines that are missing here
# The documentation of every key: docs/agent.md, "Policy of the host".

# Folders that the commands write to, such as /run and /var/log/nginx. With this line, the agent and its commands can write only to
# these folders and to the folders of the files below (Landlock). A change applies when the agent is restarted.
#writable_folders = ["/run", "/var/log/nginx"]

# Files that the agent may write: a path, a folder (ends in "/"), or a glob (*, ?, and ** for any number of folders).
# An existing file keeps its owner and group. A new file gets the owner and group of the agent. List other owners and groups.
#[[files]]
#path = "/etc/nginx/tls/*.pem"
#owners = ["root"]
#groups = ["root"]
#mode = "0640"

# Commands that the agent may run, without a shell and with a clean environment. A target gives the name of a command
# ("reload": "nginx-reload"), or exactly the same arguments.
#[commands.nginx-test]
#argv = ["nginx", "-t"]
#user = "root"

#[commands.nginx-reload]
#argv = ["nginx", "-s", "reload"]
#user = "root"
#timeout_s = 60
#environment = { TZ = "UTC" }

# Endpoints whose served certificate the agent may check: HOST:PORT, where HOST is a name, an address or a network.
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
