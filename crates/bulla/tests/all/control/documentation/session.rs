//! Runs pages in one namespace: each page in a shell of its own, all with one server or without.
//!
//! The namespace has its own network and mounts, so that the pages use the default ports and paths, and nothing else of this machine.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::page::Page;
use super::root;
use crate::world::{bulla, describe, run};

const NEEDED: &str = "this test needs namespaces (util-linux), iproute2, openssl, curl and jq";

/// Placeholders that have a value on every page.
pub(crate) const PLACEHOLDERS: [&str; 5] = ["HOST", "ID", "NAME", "PORT", "TARGET"];

/// Commands that run until they are stopped, and the output that says that they are ready.
const SERVICES: [(&str, &str); 6] = [
    ("bulla proxy", "clients must trust its CA"),
    ("bulla key serve", "bulla signs with"),
    ("bulla edge", "bulla terminates TLS"),
    ("bulla credential agent", "the agent listens at"),
    ("bulla agent run", "waits for jobs of its server"),
    ("bulla serve", "bulla is up"),
];

/// The start of every page: its placeholders, and the root certificate of the server. `block` prints a block of the page.
/// `service` starts a command in the background, and returns when its output has the text. `search_result` adds a certificate to the
/// search for example.com in CT logs.
const SHELL: &str = r#"
set -o pipefail
HOST=localhost PORT=8443 NAME=www.example.com TARGET=local
if [ -e "$WORLD/root.pem" ]; then cp "$WORLD/root.pem" .; ID=$(bulla alert list --output name | head -n 1); fi
# Prints a block of the page: its language, and its number among the blocks of this language.
block() {
  awk -v fence='```'"$1" -v at="$2" '/^```/ { inside = !inside; here = inside && $0 == fence && ++count == at; next } here' "$PAGE"
}
# The number of the certificate, and its name.
search_result() {
  local query='v1/issuances?domain=example.com&include_subdomains=true&expand=dns_names&expand=issuer&expand=cert_der'
  local after; after=$([ "$1" = 1 ] || echo "&after=$(($1 - 1))")
  mkdir -p "$WORLD/ct/v1"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj "/O=CA $1/CN=CA $1" \
    -addext "subjectAltName=DNS:$2" -addext basicConstraints=critical,CA:false -keyout /dev/null -outform DER -out result.der 2> /dev/null
  response '[]' > "$WORLD/ct/$query&after=$1"
  response "[{\"id\":\"$1\",\"dns_names\":[\"$2\"],\"cert_der\":\"$(base64 -w 0 result.der)\"}]" > "$WORLD/ct/$query$after"
}
response() {
  printf 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s' "${#1}" "$1"
}
trap 'kill $(jobs -p) 2> /dev/null' EXIT
service() {
  local ready=$1
  eval "$2" &
  until grep -q "$ready" "$OUT" "$ERR"; do kill -0 $! 2> /dev/null || { wait $!; return; }; sleep 0.05; done
}
"#;

/// Prepares the namespace: writable copies of system folders, host names, a policy for the agent, and an HTTPS server at port 443.
const WORLD: &str = r#"
set -e
ip link set lo up
mkdir -p "$WORLD/etc" "$HOME"
cp -a /etc/. "$WORLD/etc" 2> /dev/null || true
mount --bind "$WORLD/etc" /etc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
rm -f /etc/hosts /etc/resolv.conf
echo "127.0.0.1 localhost example.com www.example.com mail.example.com www.example.net shop.example.net pki.example.net" > /etc/hosts
echo "nameserver 127.0.0.1" > /etc/resolv.conf
cd "$WORLD"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=www.example.com \
  -addext basicConstraints=critical,CA:false \
  -addext subjectAltName=DNS:www.example.com,DNS:example.com,DNS:www.example.net -keyout web.key -out web.pem 2> /dev/null
mkdir -p /etc/bulla /etc/tls /var/lib/bulla
cat > /etc/bulla/agent.toml << END
[[files]]
path = "/etc/tls/*"
END
openssl s_server -accept 443 -www -key web.key -cert web.pem > web.log 2>&1 < /dev/null &
"#;

/// Starts `bulla up`. The search service for CT logs is a folder with one response for each query.
const UP: &str = r#"
mkdir -p "$WORLD/ct"
(cd "$WORLD/ct"; exec openssl s_server -accept 9444 -HTTP -key ../web.key -cert ../web.pem > ../ct.log 2>&1 < /dev/null) &
export BULLA_CT_CERTSPOTTER_URL=https://www.example.com:9444 BULLA_CT_CERTSPOTTER_PER_MINUTE=600 BULLA_CT_CA_FILES="$WORLD/web.pem"
export BULLA_CT_GRACE_S=0 BULLA_SERVER_URL=https://pki.example.net:8443
cd "$HOME"
export BULLA_EDGE_UPSTREAM=127.0.0.1:443 BULLA_EDGE_LISTEN=127.0.0.1:9443 BULLA_EDGE_INVENTORY=true
bulla up > "$WORLD/up.log" 2>&1 &
server=$!
until grep -q "bulla doctor" "$WORLD/up.log"; do kill -0 $server || { cat "$WORLD/up.log" >&2; exit 1; }; sleep 0.05; done
until agent=$(bulla agent list --query '[0].id' 2> agent.log) && [ "$agent" != null ]; do sleep 0.05; done
bulla target create --file - << END > /dev/null
{"name": "local", "agent": $agent, "target": {"type": "nginx", "fullchain": "/etc/tls/www.pem", "key": "/etc/tls/www.key"}}
END
bulla cert create www.example.com > /dev/null
bulla watch add www.example.com localhost:8443 www.example.com --every 1h > /dev/null
until bulla alert list --output name 2> alert.log | grep -q .; do sleep 0.1; done
cp .local/share/bulla/root.pem "$WORLD/root.pem"
"#;

/// What a step did.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) struct Session {
    folder: TempDir,
    /// What the namespace printed.
    printed: String,
}

impl Session {
    /// Runs all steps of the pages. `common` is a script for the start of every page.
    pub(crate) fn of(pages: &[&Page], with_server: bool, common: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut script = WORLD.to_owned();
        if with_server {
            script += UP;
        }
        script += "set +e\n";
        for page in pages {
            let results = folder.path().join("results").join(&page.name);
            std::fs::create_dir_all(&results).unwrap();
            std::fs::write(results.join("page.sh"), page_script(page, &results, common)).unwrap();
            let work = folder.path().join("work").join(&page.name);
            std::fs::create_dir_all(&work).unwrap();
            let (work, results) = (work.display(), results.display());
            writeln!(
                script,
                "cd {work}; timeout 600 bash {results}/page.sh < /dev/null > {results}/shell 2>&1"
            )
            .unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(bulla().get_program(), folder.path().join("bin/bulla")).unwrap();
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = Command::new("unshare");
        if !is_root {
            command.args(["--map-current-user", "--keep-caps"]);
        }
        command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", &script])
            .env_clear()
            .env("HOME", folder.path().join("home"))
            .env("WORLD", folder.path())
            .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", folder.path().join("bin").display()))
            .current_dir(folder.path());
        let output = run(&mut command);
        Self { folder, printed: format!("{NEEDED}\n{}", describe(&output)) }
    }

    pub(crate) fn printed(&self) -> &str {
        &self.printed
    }

    /// Returns the result of a step, by its number in the page.
    pub(crate) fn done(&self, page: &Page, step: usize) -> Done {
        let results = self.folder.path().join("results").join(&page.name);
        let read = |name: &str| {
            let bytes = std::fs::read(results.join(format!("{step}.{name}"))).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Done { code: read("code").trim().parse().ok(), out: read("out"), err: read("err") }
    }
}

/// Returns the text of the output that says that the service of this command is ready, if it is one.
fn readiness(command: &str) -> Option<&'static str> {
    let words: Vec<&str> = command.lines().next()?.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "bulla")?;
    if words[..at].iter().any(|word| !word.contains('=')) {
        return None;
    }
    let words: Vec<&str> = words[at..].iter().copied().take_while(|word| *word != "#").collect();
    let found = SERVICES.iter().find(|(start, _)| {
        let start: Vec<&str> = start.split(' ').collect();
        words.starts_with(&start) && words.get(start.len()).is_none_or(|next| next.starts_with(['-', '\\']))
    });
    found.map(|(_, ready)| *ready)
}

/// Escapes a text for single quotes of the shell.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

fn page_script(page: &Page, results: &Path, common: &str) -> String {
    let mut script = format!("PAGE={}\n{SHELL}{common}", root().join(&page.name).display());
    let steps = page.blocks.iter().flat_map(|block| block.steps.iter().map(move |step| (block, step)));
    for (at, (block, step)) in steps.enumerate() {
        let Ok(command) = &step.run else { continue };
        if block.reason.is_some() {
            continue;
        }
        let file = results.join(at.to_string());
        let file = file.display();
        let text = if command.split('#').next().is_some_and(|command| command.trim() == "bulla up") {
            "cat \"$WORLD/up.log\"".to_owned()
        } else if let Some(ready) = readiness(command) {
            format!("service '{ready}' '{}'", quoted(command))
        } else if step.shown.contains("Ctrl-C") {
            // A command that has ended before is judged by its exit code.
            format!("service . '{}'; kill $! 2> /dev/null || wait $!", quoted(command))
        } else {
            command.clone()
        };
        writeln!(script, "OUT={file}.out ERR={file}.err\n{{\n:\n{text}\n}} > {file}.out 2> {file}.err; echo $? > {file}.code")
            .unwrap();
    }
    script
}
