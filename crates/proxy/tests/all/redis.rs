//! Redis sessions with a real server, and with hostile clients and servers.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use proxy::policy::{IdentityText, Policy, PolicyRuleText, PolicyText};
use proxy::requests::{AuditOptions, Form, InjectText, RequestRules, RuleText};
use proxy::{DatabaseListenerOptions, Options, Token, UpstreamTlsMode, Users};
use serde_json::Value;
use tempfile::TempDir;
use testbed::{Redis, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use x509::HostOrIp;

use crate::world::{TIMEOUT, World, authority};

const TOKEN: &str = "token-of-ci";
const PASSWORD: &str = "canary-of-the-cache";
const PROXY_TIMEOUT: Duration = Duration::from_secs(5);

/// A proxy before a server at `port`. The identity `ci` may use the databases 0 and 1 with the credential of the user `app`, and the
/// database 2 without it.
struct Sessions {
    world: World,
    port: u16,
    folder: TempDir,
}

impl Sessions {
    async fn before(port: u16) -> Self {
        Self::with(port, |_| {}).await
    }

    async fn with(port: u16, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_password(&folder.path().join("password"), PASSWORD);
        let (policy, rules) = (policy(port, &["0", "1", "2"]), rules(port, folder.path().join("password")));
        let audit = folder.path().join("audit.jsonl");
        let world = World::new(&authority().1, |options| {
            options.head_timeout = PROXY_TIMEOUT;
            options.connect_timeout = PROXY_TIMEOUT;
            options.access.tokens = vec![token("ci"), token("other")];
            options.policy = policy;
            options.requests.rules = rules;
            options.requests.audit = Some(AuditOptions { file: audit, sync: false });
            options.redis = vec![DatabaseListenerOptions {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                host: HostOrIp::parse("127.0.0.1").unwrap(),
                port,
                tls: UpstreamTlsMode::Disable,
            }];
            change(options);
        })
        .await;
        Self { world, port, folder }
    }

    fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    async fn client(&self) -> Client {
        Client(TcpStream::connect(self.world.running.redis[0]).await.unwrap())
    }

    /// Opens a session of `ci`.
    async fn session(&self) -> Client {
        let mut client = self.client().await;
        client.send(&[&["AUTH", "ci", TOKEN]]).await;
        client.receives("+OK\r\n").await;
        client
    }

    /// Sends bytes, and returns all that the proxy answers until the connection ends.
    async fn answer(&self, sent: &[u8]) -> String {
        let mut client = self.client().await;
        client.0.write_all(sent).await.unwrap();
        client.rest().await
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap();
        assert!(!text.contains(PASSWORD), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn policy(port: u16, databases: &[&str]) -> Policy {
    let identity =
        |name: &str| IdentityText { name: name.into(), users: vec![name.into()], ..IdentityText::default() };
    let rule = PolicyRuleText {
        identities: vec!["ci".into()],
        host: vec!["127.0.0.1".into()],
        port: vec![port],
        database: databases.iter().map(ToString::to_string).collect(),
        ..PolicyRuleText::default()
    };
    let text =
        PolicyText { default: None, identities: vec![identity("ci"), identity("other")], rules: vec![rule] };
    Policy::compile(&text).unwrap()
}

fn rules(port: u16, file: PathBuf) -> RequestRules {
    let inject = InjectText {
        file: Some(file),
        form: Form::Redis,
        user: Some("app".into()),
        port: vec![port],
        database: vec!["0".into(), "1".into()],
        identities: vec!["ci".into()],
        ..InjectText::default()
    };
    let rule = RuleText { host: vec!["127.0.0.1".into()], inject: Some(inject), ..RuleText::default() };
    RequestRules::compile(&[rule]).unwrap()
}

fn token(name: &str) -> Token {
    let digest = digest(&SHA256, format!("token-of-{name}").as_bytes());
    Token { name: name.into(), digest: digest.as_ref().try_into().unwrap() }
}

fn write_password(file: &std::path::Path, password: &str) {
    std::fs::write(file, password).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Encodes commands.
fn commands(commands: &[&[&str]]) -> Vec<u8> {
    let argument = |one: &&str| format!("${}\r\n{one}\r\n", one.len());
    let command =
        |all: &&[&str]| format!("*{}\r\n{}", all.len(), all.iter().map(argument).collect::<String>());
    commands.iter().map(command).collect::<String>().into_bytes()
}

/// A client's connection.
struct Client(TcpStream);

impl Client {
    async fn send(&mut self, all: &[&[&str]]) {
        self.0.write_all(&commands(all)).await.unwrap();
    }

    /// Receives exactly `wanted`.
    async fn receives(&mut self, wanted: &str) {
        let mut received = vec![0; wanted.len()];
        let read = timeout(TIMEOUT, self.0.read_exact(&mut received)).await.expect("a reply");
        assert_eq!(String::from_utf8_lossy(&received), wanted, "{read:?}");
    }

    /// Returns all bytes until the connection ends.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        timeout(TIMEOUT, self.0.read_to_end(&mut rest)).await.expect("the connection ends").unwrap_or(0);
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains(PASSWORD), "{rest:?}");
        rest
    }
}

/// Returns the error in the place of a refused command.
fn refused(what: &str, why: &str) -> String {
    format!("-ERR unknown command '{what} refused by the proxy', with args beginning with: '{why}' \r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn client_logs_in_with_its_token_and_the_server_sees_another_user() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let ended =
        [&["AUTH", "ci", TOKEN][..], &["ACL", "WHOAMI"], &["SET", "a", "1"], &["GET", "a"], &["QUIT"]];
    let answer = sessions.answer(&commands(&ended)).await;
    assert_eq!(answer, "+OK\r\n$3\r\napp\r\n+OK\r\n$1\r\n1\r\n+OK\r\n");
    // The server answers HELLO, also with the name of the connection.
    let hello = ["HELLO", "3", "AUTH", "ci", TOKEN, "SETNAME", "worker"];
    let answer = sessions.answer(&commands(&[&hello, &["CLIENT", "GETNAME"], &["QUIT"]])).await;
    assert!(answer.starts_with('%') && answer.contains("\r\nproto\r\n:3\r\n"), "{answer:?}");
    assert!(answer.ends_with("$6\r\nworker\r\n+OK\r\n"), "{answer:?}");

    // The event with the credential is written before the login, and a second event at the end.
    until("the outcomes to be written", || sessions.audit().len() >= 4).await;
    let events = sessions.audit();
    let details = &events[0]["details"];
    assert_eq!(
        (&events[0]["action"], &events[0]["actor"]),
        (&"proxy.session.allow".into(), &"identity:ci".into())
    );
    assert_eq!(
        (&details["method"], &details["path"], &details["sent"]),
        (&"REDIS".into(), &"/0".into(), &true.into())
    );
    assert!(details["credentials"][0]["name"].as_str().unwrap().ends_with("/password"), "{details}");
    let is_outcome = |event: &&Value| event["action"] == "proxy.session.outcome";
    let outcome = events.iter().find(is_outcome).unwrap();
    assert_eq!((&outcome["details"]["status"], &outcome["details"]["complete"]), (&200.into(), &true.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_commands_never_reach_the_server_and_their_errors_keep_the_order() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let mut client = sessions.session().await;
    let passwords = "it can show or change passwords";
    client
        .send(&[
            &["SET", "a", "1"],
            &["CONFIG", "GET", "requirepass"],
            &["GET", "a"],
            &["ACL", "GETUSER", "app"],
            &["BLPOP", "nothing", "0.1"],
            &["MIGRATE", "127.0.0.1", "1", "a", "0", "100"],
            &["INCR", "a"],
            &["MONITOR"],
            &["CLUSTER", "MEET", "127.0.0.1", "1"],
            &["RESET"],
            &["AUTH", "default", "guess"],
            &["AUTH", "guess"],
            &["HELLO", "3", "AUTH", "default", "guess"],
            &["GET", "a"],
        ])
        .await;
    let elsewhere = "it can send the data elsewhere";
    let another = "the session is logged in with another token: open a new connection";
    let wanted = [
        "+OK\r\n",
        &refused("CONFIG", passwords),
        "$1\r\n1\r\n",
        &refused("ACL", passwords),
        "*-1\r\n",
        &refused("MIGRATE", elsewhere),
        ":2\r\n",
        &refused("MONITOR", "it shows the commands of other clients"),
        &refused("CLUSTER", elsewhere),
        &refused("RESET", "it logs the session out: open a new connection"),
        &refused("AUTH", another),
        &refused("AUTH", "send AUTH NAME TOKEN: the name and the value of the proxy token"),
        &refused("HELLO with AUTH", another),
        "$1\r\n2\r\n",
    ];
    client.receives(&wanted.concat()).await;
    // In a transaction, an error makes the server refuse all of it.
    client.send(&[&["MULTI"], &["SET", "a", "3"], &["CONFIG", "GET", "*"], &["EXEC"], &["GET", "a"]]).await;
    client
        .receives(
            &[
                "+OK\r\n+QUEUED\r\n",
                &refused("CONFIG", passwords),
                "-EXECABORT Transaction discarded because of previous errors.\r\n$1\r\n2\r\n",
            ]
            .concat(),
        )
        .await;
    // With Pub/Sub, other replies may come between.
    client
        .send(&[&["SUBSCRIBE", "news"], &["DEBUG", "SLEEP", "0"], &["UNSUBSCRIBE", "news"], &["QUIT"]])
        .await;
    let pubsub = [
        "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n",
        &refused("DEBUG", "it reads or stops the server"),
        "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n+OK\r\n",
    ];
    client.receives(&pubsub.concat()).await;
    assert_eq!(client.rest().await, "");
    for name in ["config", "migrate", "monitor", "cluster", "reset", "debug"] {
        assert!(!server.has_got(name), "{name}");
    }
    assert!(server.has_got("blpop") && server.admin(&["INFO", "commandstats"]).contains("cmdstat_auth:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_with_the_same_token_is_accepted_again() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let mut client = sessions.session().await;
    client.send(&[&["SET", "a", "1"], &["auth", "ci", TOKEN], &["GET", "a"], &["ACL", "WHOAMI"]]).await;
    client.receives("+OK\r\n+OK\r\n$1\r\n1\r\n$3\r\napp\r\n").await;
    client.send(&[&["MULTI"], &["AUTH", "ci", TOKEN], &["EXEC"]]).await;
    client.receives("+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n").await;
    client.send(&[&["CLIENT", "REPLY", "OFF"], &["AUTH", "ci", TOKEN], &["GET", "a"]]).await;
    client.send(&[&["CLIENT", "REPLY", "ON"], &["HELLO", "2", "AUTH", "ci", TOKEN]]).await;
    client.receives("+OK\r\n*14\r\n$6\r\nserver\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_uses_only_databases_that_the_rules_allow() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let mut client = sessions.session().await;
    client
        .send(&[
            &["SET", "a", "in 0"],
            &["SELECT", "1"],
            &["SET", "a", "in 1"],
            &["SELECT", "0"],
            &["GET", "a"],
            &["COPY", "a", "b", "DB", "1"],
        ])
        .await;
    client.receives("+OK\r\n+OK\r\n+OK\r\n+OK\r\n$4\r\nin 0\r\n:1\r\n").await;
    let denied = |what: &str, number: &str| {
        format!(
            "-ERR unknown command '{what} refused by the proxy', with args beginning with: 'the default of the policy denies identity ci \
             a session with the database {number} on 127.0.0.1:{}: ",
            sessions.port
        )
    };
    for (command, wanted) in [
        (&["SELECT", "3"][..], denied("SELECT 3", "3")),
        (&["MOVE", "a", "4"], denied("MOVE 4", "4")),
        (&["COPY", "a", "b", "REPLACE", "DB", "3"], denied("COPY 3", "3")),
        (&["SWAPDB", "0", "3"], denied("SWAPDB 3", "3")),
        // The policy allows it, but no rule grants the credential for it.
        (
            &["SELECT", "2"],
            "-ERR unknown command 'SELECT 2 refused by the proxy', with args beginning with: 'no rule".into(),
        ),
        (&["SELECT", "01"], "-ERR unknown command 'SELECT refused by the proxy'".into()),
    ] {
        client.send(&[command, &["GET", "a"]]).await;
        let mut answer = String::new();
        while !answer.ends_with("$4\r\nin 0\r\n") {
            let mut byte = [0];
            timeout(TIMEOUT, client.0.read_exact(&mut byte)).await.expect("a reply").unwrap();
            answer.push(byte[0].into());
        }
        // Redis shows at most 128 bytes of the reason.
        let cut: String = wanted.chars().take(190).collect();
        assert!(answer.starts_with(&cut), "{command:?}: {answer}\n{cut}");
    }
    let events = sessions.audit();
    let of = |action: &str, path: &str| {
        events.iter().filter(|event| event["action"] == action && event["details"]["path"] == path).count()
    };
    assert_eq!((of("proxy.session.allow", "/0"), of("proxy.session.allow", "/1")), (1, 1), "{events:?}");
    assert_eq!((of("proxy.session.deny", "/3"), of("proxy.session.deny", "/2")), (3, 1), "{events:?}");
    // The session ends when a database that it uses is no longer allowed.
    let rules = rules(sessions.port, sessions.password_file());
    sessions.world.running.change_rules(Default::default(), policy(sessions.port, &["0"]), rules, None);
    assert_eq!(client.rest().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_is_not_authenticated_gets_nothing() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let required = "-NOAUTH Authentication required.\r\n";
    for (sent, wanted) in [
        (
            commands(&[&["GET", "a"], &["PING"], &["CONFIG", "GET", "*"], &["QUIT"]]),
            format!("{}+OK\r\n", required.repeat(3)),
        ),
        (commands(&[&["HELLO", "3"], &["QUIT"]]), "-NOAUTH HELLO must be called".into()),
        (commands(&[&["RESET"], &["QUIT"]]), "-ERR RESET refused by the proxy".into()),
        (
            commands(&[&["AUTH", TOKEN], &["QUIT"]]),
            "-ERR AUTH refused by the proxy: send AUTH NAME TOKEN: the name".into(),
        ),
        (
            commands(&[&["AUTH", "ci", "wrong"], &["GET", "a"]]),
            "-WRONGPASS wrong user name, password or token".into(),
        ),
        (
            commands(&[&["HELLO", "3", "AUTH", "c", TOKEN]]),
            "-WRONGPASS wrong user name, password or token".into(),
        ),
        (commands(&[&["AUTH", "app", PASSWORD]]), "-WRONGPASS".into()),
        (
            commands(&[&["AUTH", "other", "token-of-other"]]),
            "-NOPERM the default of the policy denies identity other a session with the database 0".into(),
        ),
        (b"PING\r\n".to_vec(), "-ERR the proxy accepts commands as arrays of bulk strings only".into()),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "-ERR the proxy accepts".into()),
        (b"\x16\x03\x01\x02\x00".to_vec(), "-ERR the proxy accepts".into()),
        (b"*1\r\n$-1\r\n".to_vec(), "-ERR the command has an invalid length".into()),
        (b"*2\r\n$4\r\nAU".to_vec(), "-ERR the client did not finish its startup in time".into()),
    ] {
        let answer = sessions.answer(&sent).await;
        assert!(answer.starts_with(&wanted), "{wanted}: {answer:?}");
    }
    assert!(!server.has_got("get") && !server.has_got("select"));
    // A client that sends nothing occupies no slot for longer than the timeout.
    assert_eq!(sessions.answer(b"").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_command_ends_the_session_after_the_replies() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let session = commands(&[&["AUTH", "ci", TOKEN], &["SET", "a", "1"], &["GET", "a"]]);
    for (broken, wanted) in [
        (
            &b"FLUSHALL\r\n"[..],
            "the proxy accepts commands as arrays of bulk strings only, not inline commands",
        ),
        (b"*1\r\n$x\r\n", "the command has an invalid length"),
    ] {
        let answer = sessions.answer(&[&session, broken, &commands(&[&["DEL", "a"]])].concat()).await;
        let wanted = format!("+OK\r\n+OK\r\n$1\r\n1\r\n{}", refused("A command", wanted));
        assert!(
            answer.starts_with(&wanted) && answer[wanted.len()..].starts_with("-ERR Protocol error"),
            "{answer}"
        );
    }
    // Within a command, nothing can be said.
    let answer = sessions.answer(&[&session[..], b"*2\r\n$3\r\nDEL\r\n$1\r\naXX"].concat()).await;
    assert!(answer.len() <= 16, "{answer}");
    assert!(!server.has_got("flushall") && !server.has_got("del"));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_pass_in_both_directions() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let mut client = sessions.session().await;
    let value = "0123456789abcdef".repeat(1 << 20);
    let sent = commands(&[&["SET", "large", &value], &["GET", "large"]]);
    let (mut reading, mut writing) = client.0.split();
    let wanted = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
    let mut received = vec![0; wanted.len()];
    let both = async { tokio::join!(writing.write_all(&sent), reading.read_exact(&mut received)) };
    let (written, read) = timeout(TIMEOUT, both).await.expect("the value");
    assert!(written.is_ok() && read.is_ok() && received == wanted.as_bytes());
    // A large refused command is not forwarded, and the session continues.
    client.send(&[&["CONFIG", "SET", "x", &value], &["STRLEN", "large"]]).await;
    client
        .receives(&format!("{}:{}\r\n", refused("CONFIG", "it can show or change passwords"), value.len()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_password_is_read_at_the_next_login() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let mut open = sessions.session().await;
    server.set_password("another-canary-77aa");
    write_password(&sessions.password_file(), "another-canary-77aa");
    // The proxy still has the old password in memory. The server rejects it, and accepts the second version.
    let mut next = sessions.session().await;
    next.send(&[&["ACL", "WHOAMI"], &["QUIT"]]).await;
    assert_eq!(next.rest().await, "$3\r\napp\r\n+OK\r\n");
    open.send(&[&["PING"]]).await;
    open.receives("+PONG\r\n").await;
    // The server has another password than the file.
    server.set_password("unknown");
    let answer = sessions.answer(&commands(&[&["AUTH", "ci", TOKEN], &["PING"]])).await;
    assert_eq!(
        answer,
        "-ERR the database server rejected the login of the proxy: WRONGPASS. Ask the operator of this proxy.\r\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_a_removed_token_ends() {
    let server = Redis::start(PASSWORD);
    let sessions = Sessions::before(server.port()).await;
    let mut client = sessions.session().await;
    client.send(&[&["BLPOP", "nothing", "0"]]).await;
    until("the command to block", || server.admin(&["INFO", "clients"]).contains("blocked_clients:1")).await;
    sessions.world.running.change_access(Users::default(), &[token("other")]);
    assert_eq!(client.rest().await, "");
    until("the server to notice", || server.admin(&["INFO", "clients"]).contains("blocked_clients:0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_needs_no_token_begins_with_any_command() {
    let server = Redis::start(PASSWORD);
    let port = server.port();
    let identity = IdentityText {
        name: "ci".into(),
        networks: vec!["127.0.0.0/8".parse().unwrap()],
        ..IdentityText::default()
    };
    let rule = PolicyRuleText {
        host: vec!["127.0.0.1".into()],
        port: vec![port],
        database: vec!["0".into()],
        ..PolicyRuleText::default()
    };
    let text = PolicyText { default: None, identities: vec![identity], rules: vec![rule] };
    let sessions = Sessions::with(port, |options| {
        options.access.tokens.clear();
        options.policy = Policy::compile(&text).unwrap();
    })
    .await;
    let sent =
        [&["SET", "a", "1"][..], &["CONFIG", "GET", "*"], &["AUTH", "ci", TOKEN], &["GET", "a"], &["QUIT"]];
    let wanted = [
        "+OK\r\n",
        &refused("CONFIG", "it can show or change passwords"),
        &refused("AUTH", "the proxy needs no token from this client: leave user and password out"),
        "$1\r\n1\r\n+OK\r\n",
    ];
    assert_eq!(sessions.answer(&commands(&sent)).await, wanted.concat());
    let answer = sessions.answer(&commands(&[&["CONFIG", "GET", "*"], &["QUIT"]])).await;
    assert_eq!(answer, format!("{}+OK\r\n", wanted[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_server_does_not_show_the_password() {
    for (reply, wanted) in [
        (
            format!("-ERR unknown command 'AUTH', with args beginning with: 'app' '{PASSWORD}'\r\n"),
            "rejected the login of the proxy: ERR",
        ),
        (format!("-{PASSWORD}\r\n"), "rejected the login of the proxy."),
        (format!("+OK {PASSWORD}\r\n"), "invalid reply"),
        (format!("${}\r\n", "1".repeat(2_000)), "invalid reply"),
        (String::new(), "broke during the login"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sessions = Sessions::before(listener.local_addr().unwrap().port()).await;
        let served = reply.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1_000]).await;
                let _ = stream.write_all(served.as_bytes()).await;
            }
        });
        let answer = sessions.answer(&commands(&[&["AUTH", "ci", TOKEN]])).await;
        assert!(answer.starts_with("-ERR ") && answer.contains(wanted), "{reply:?}: {answer:?}");
    }
}
