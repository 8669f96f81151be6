//! Benchmark: cost of the web console's pages by the number of certificates: time to the first byte and bytes of each page, without and
//! with its compressed scripts and styles, and the memory of open event streams. The server is a separate process, so that the client's
//! processor time is not counted.
//!
//! ```console
//! $ cargo build --release
//! $ cargo xtask bench console target/release/bulla sqlite 1000 100000 1000000
//! ```

#![allow(clippy::unwrap_used, reason = "a bench ends where something fails")]
#![allow(dead_code, reason = "the generator serves other benches too")]

#[path = "../../lifecycle/examples/filled/mod.rs"]
mod filled;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::free_port;
use reqwest::{Certificate, Client, Response};
use store::testing::Cluster;
use store::{Store, StoreUrl};

/// Requests per page.
const TIMES: usize = 100;

/// Concurrently open event streams. One address may have 512 connections, and a connection 100 streams.
const STREAMS: usize = 1_000;
const CLIENTS: usize = 20;

/// Timeout for the start of the server.
const TIMEOUT: Duration = Duration::from_secs(120);

const PAGES: &[&str] = &[
    "/console",
    "/console/certificates",
    "/console/certificates?owner=owner7",
    "/console/certificates?status=active&issuer=internal",
    "/console/certificates?contains=0777.e2",
    "/console/search?q=host00007",
    "/console/search?q=example",
    "/console/jobs",
    "/console/alerts",
    "/console/endpoints",
    "/console/authorities",
    "/console/audit",
    "/console/settings",
];

struct Server {
    process: Child,
    client: Client,
    url: String,
    token: String,
    root: Certificate,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    #[expect(clippy::zombie_processes, reason = "dropping the server waits for it")]
    async fn start(program: &str, database: &str, folder: &Path) -> Self {
        let ports: [u16; 3] = std::array::from_fn(|_| free_port());
        let [api, credentials, open] = ports.map(|port| format!("127.0.0.1:{port}"));
        let process = Command::new(program)
            .args(["up", "--roles", "server", "--db", database, "--listen", &api])
            .args(["--credential-listen", &credentials, "--public-listen", &open])
            .env("BULLA_DATA", folder.join("data"))
            .env("HOME", folder)
            .env("BULLA_LIMITS_CALLER_PER_S", "0")
            .env("BULLA_LIMITS_CALLER_IN_FLIGHT_MAX", "4096")
            .env("BULLA_LIMITS_ADDRESS_PER_S", "0")
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let url = format!("https://localhost:{}", ports[0]);
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < TIMEOUT, "the server does not start");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let file = |name: &str| std::fs::read(folder.join("data").join(name));
            let (Ok(root), Ok(token)) = (file("root.pem"), file("admin.token")) else { continue };
            let Ok(root) = Certificate::from_pem(&root) else { continue };
            let token = String::from_utf8(token).unwrap().trim().to_owned();
            let client = Client::builder().tls_certs_only([root.clone()]).build().unwrap();
            if client
                .get(format!("{url}/readyz"))
                .send()
                .await
                .is_ok_and(|answer| answer.status().is_success())
            {
                return Self { process, client, url, token, root };
            }
        }
    }

    async fn page(&self, client: &Client, path: &str) -> Response {
        let answer = client.get(format!("{}{path}", self.url)).bearer_auth(&self.token).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer
    }

    /// Returns the resident memory in KiB.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }
}

/// Returns the bytes of the scripts, styles and images of a page, as a browser without a cache gets them.
async fn assets(server: &Server, page: &str) -> usize {
    let paths: BTreeSet<&str> = page.split('"').filter(|text| text.starts_with("/console/assets/")).collect();
    let mut bytes = 0;
    for path in paths {
        let request = server.client.get(format!("{}{path}", server.url)).header("accept-encoding", "gzip");
        bytes += request.send().await.unwrap().bytes().await.unwrap().len();
    }
    bytes
}

async fn pages(server: &Server, count: usize) {
    for path in PAGES {
        let mut all = Vec::with_capacity(TIMES);
        let mut page = String::new();
        for _ in 0..TIMES {
            let began = Instant::now();
            let answer = server.page(&server.client, path).await;
            all.push(began.elapsed());
            page = answer.text().await.unwrap();
        }
        let (bytes, whole) = (page.len(), page.len() + assets(server, &page).await);
        all.sort();
        let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize].as_secs_f64() * 1_000.0;
        println!("{count:>9} {path:<55} {:>8.1} {:>8.1} {bytes:>8} {whole:>9}", at(0.5), at(0.99));
    }
}

async fn streams(server: &Server) {
    let before = server.memory();
    let mut open = Vec::with_capacity(STREAMS);
    for _ in 0..CLIENTS {
        let client = Client::builder().tls_certs_only([server.root.clone()]).build().unwrap();
        for _ in 0..STREAMS / CLIENTS {
            open.push(server.page(&client, "/console/events").await);
        }
    }
    println!("{} event streams: {} KiB more memory", open.len(), server.memory().saturating_sub(before));
    pages(server, open.len()).await;
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, database, sizes @ ..] = arguments.as_slice() else {
        panic!("usage: console_pages PROGRAM sqlite|postgres COUNT…");
    };
    println!("{:>9} {:<55} {:>8} {:>8} {:>8} {:>9}", "at", "page", "p50 ms", "p99 ms", "bytes", "all bytes");
    for (nth, size) in sizes.iter().enumerate() {
        let count: usize = size.parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cluster = (database == "postgres").then(Cluster::start);
        let file = folder.path().join("bulla.db");
        let url = match &cluster {
            Some(cluster) => cluster.database(),
            None => StoreUrl::sqlite(&file),
        };
        filled::fill(&Store::open(&url).await.unwrap(), 0, count).await;
        let text = if cluster.is_some() { url.to_string() } else { file.display().to_string() };
        let server = Server::start(program, &text, folder.path()).await;
        pages(&server, count).await;
        if nth + 1 == sizes.len() {
            streams(&server).await;
        }
    }
}
