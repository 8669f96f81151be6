//! PostgreSQL sessions with hostile clients and servers. Sessions with a real server are in the tests of the binary.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use proxy::policy::{IdentityText, Policy, PolicyRuleText, PolicyText};
use proxy::requests::{Form, InjectText, RequestRules, RuleText};
use proxy::{DatabaseListenerOptions, Token, UpstreamTlsMode};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use x509::HostOrIp;

use crate::world::{TIMEOUT, World, authority};

const TOKEN: &str = "token-of-ci";
const PASSWORD: &str = "canary-of-the-database";
const PROXY_TIMEOUT: Duration = Duration::from_secs(2);

/// A proxy before a server that sends `messages` after the startup packet, without TLS.
struct Sessions {
    world: World,
    port: u16,
    _folder: TempDir,
}

impl Sessions {
    async fn before(messages: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let messages = messages.clone();
                tokio::spawn(async move {
                    let length = stream.read_u32().await.unwrap_or(4);
                    let _ = stream.read_exact(&mut vec![0; length as usize - 4]).await;
                    let _ = stream.write_all(&messages).await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                });
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, PASSWORD).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let inject = InjectText {
            file: Some(file),
            form: Form::Postgresql,
            user: Some("app".into()),
            port: vec![port],
            identities: vec!["ci".into()],
            ..InjectText::default()
        };
        let rule = RuleText { host: vec!["127.0.0.1".into()], inject: Some(inject), ..RuleText::default() };
        let identity =
            IdentityText { name: "ci".into(), users: vec!["ci".into()], ..IdentityText::default() };
        let allowed = PolicyRuleText {
            identities: vec!["ci".into()],
            host: vec!["127.0.0.1".into()],
            port: vec![port],
            database: vec!["shop".into()],
            ..PolicyRuleText::default()
        };
        let policy = PolicyText { default: None, identities: vec![identity], rules: vec![allowed] };
        let digest = digest(&SHA256, TOKEN.as_bytes()).as_ref().try_into().unwrap();
        let world = World::new(&authority().1, |options| {
            options.head_timeout = PROXY_TIMEOUT;
            options.connect_timeout = PROXY_TIMEOUT;
            options.access.tokens = vec![Token { name: "ci".into(), digest }];
            options.policy = Policy::compile(&policy).unwrap();
            options.requests.rules = RequestRules::compile(&[rule]).unwrap();
            options.postgresql = vec![DatabaseListenerOptions {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                host: HostOrIp::parse("127.0.0.1").unwrap(),
                port,
                tls: UpstreamTlsMode::Disable,
            }];
        })
        .await;
        Self { world, port, _folder: folder }
    }

    /// Sends `sent`, and returns all that the proxy answers until it closes the connection.
    async fn answer(&self, sent: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.world.running.postgresql[0]).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the proxy closes it").unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(!answer.contains(PASSWORD), "{answer:?}");
        answer
    }
}

fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let body: String = parameters.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    let mut packet = (body.len() as u32 + 9).to_be_bytes().to_vec();
    packet.extend_from_slice(&[0, 3, 0, 0]);
    packet.extend_from_slice(body.as_bytes());
    packet.push(0);
    packet
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// Returns the packets of a client that logs in.
fn client(database: &str, token: &str) -> Vec<u8> {
    let startup = startup(&[("user", "ci"), ("database", database)]);
    [startup, message(b'p', format!("{token}\0").as_bytes())].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_first_packets_end_the_connection() {
    let sessions = Sessions::before(Vec::new()).await;
    for (sent, wanted) in [
        // Bytes that are not read may reset the connection before the client has the answer.
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ""),
        (vec![0, 0, 0, 7, 0, 0, 0], ""),
        (vec![0xff; 64], ""),
        ([b"\0\0\0\x08\x04\xd2\x16\x2f".repeat(3), startup(&[("user", "ci")])].concat(), ""),
        (startup(&[("user", "ci"), ("database", "shop"), ("database", "other")]), "08P01"),
        (startup(&[("database", "shop")]), "no user name"),
        ([startup(&[("user", "ci")]), message(b'Q', b"SELECT 1\0")].concat(), "no password"),
        (client("shop", "wrong"), "28P01"),
        (client("other", TOKEN), "28000"),
        // The server's port is not 5432.
        (client("other", TOKEN), "with the `port` of the server"),
    ] {
        let answer = sessions.answer(&sent).await;
        assert!(answer.contains(wanted), "{wanted}: {answer:?}");
    }
    // A client that stops in the middle of a packet, or sends nothing, occupies no slot for longer than the timeout.
    for sent in [&b"\0\0"[..], b"", b"\0\0\0\x30\0\x03\0\0user"] {
        assert_eq!(sessions.answer(sent).await, "", "{sent:?}");
    }
    assert!(
        sessions.answer(&startup(&[("user", "ci")])).await.contains("did not finish its startup in time")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_server_gets_no_password_and_ends_the_session() {
    for (messages, wanted) in [
        // It requests the password in clear, or as MD5, without TLS.
        (message(b'R', b"\0\0\0\x03"), "SCRAM-SHA-256 only"),
        (message(b'R', b"\0\0\0\x05salt"), "SCRAM-SHA-256 only"),
        (message(b'R', b"\0\0\0\x07"), "does not support"),
        (message(b'E', b"SFATAL\0C53300\0Msecret of the server\0\0"), "SQLSTATE 53300"),
        (vec![b'R', 0x7f, 0xff, 0xff, 0xff], "broke during the login"),
        (message(b'Z', b"I"), "invalid message"),
        (Vec::new(), "did not finish the login in time"),
        // After the login.
        ([message(b'R', b"\0\0\0\0"), message(b'K', b"short")].concat(), "invalid message"),
        (
            [message(b'R', b"\0\0\0\0"), message(b'E', b"SFATAL\0C3D000\0Mno such database\0\0")].concat(),
            "no such database",
        ),
    ] {
        let sessions = Sessions::before(messages.clone()).await;
        let answer = sessions.answer(&client("shop", TOKEN)).await;
        assert!(
            answer.contains(wanted) && !answer.contains("secret of the server"),
            "{messages:?}: {answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_begins_with_a_key_of_the_proxy_and_its_bytes_are_relayed() {
    let begin = [
        message(b'R', b"\0\0\0\0"),
        message(b'S', b"client_encoding\0UTF8\0"),
        message(b'K', b"\0\0\0\x07\0\0\0\x08"),
        message(b'Z', b"I"),
        b"bytes after".to_vec(),
    ];
    let sessions = Sessions::before(begin.concat()).await;
    let mut stream = TcpStream::connect(sessions.world.running.postgresql[0]).await.unwrap();
    stream.write_all(&client("shop", TOKEN)).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"bytes after") {
        let count = timeout(TIMEOUT, stream.read_buf(&mut received)).await.unwrap().unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&received));
    }
    let key = received.windows(5).position(|some| some == b"K\0\0\0\x0c").unwrap();
    assert_ne!(&received[key + 5..key + 13], b"\0\0\0\x07\0\0\0\x08", "the key of the server");
    assert!(received.windows(20).any(|some| some == b"client_encoding\0UTF8"));
    assert_ne!(sessions.port, sessions.world.running.postgresql[0].port());
}
