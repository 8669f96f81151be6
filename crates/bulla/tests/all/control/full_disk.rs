//! A full disk: the error names the disk, writes are rejected, nothing acknowledged is lost, and reads work, also after a restart.
//!
//! The disk is a tmpfs of 16 MiB in the test's own namespaces.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use fleet::network::alone;
use serde_json::{Value, json};

use super::House;

/// Size of one credential value, in bytes: a few dozen fill the disk.
const VALUE_BYTES: usize = 60_000;
/// Size of the ballast file, in bytes. Its removal frees space.
const BALLAST_BYTES: usize = 4 << 20;
/// More values than fit on the disk.
const VALUES_MAX: usize = 1_000;

/// A response: status and body.
struct Response(u16, String);

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.1).unwrap_or_else(|error| panic!("{error}: {}", self.1))
    }
}

struct Fixture {
    house: House,
    /// URL of the credential store.
    credentials: String,
    token: String,
}

impl Fixture {
    fn new() -> Self {
        let mut house = House::prepared("", None);
        let data = house.path("data");
        std::fs::create_dir(&data).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16m,mode=700", "none"])
            .arg(&data)
            .status()
            .unwrap_or_else(|error| panic!("apt-get install -y mount ({error})"));
        assert!(mounted.success(), "a tmpfs of its own");
        house.start();
        let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap().trim().to_owned();
        Self { credentials: read("credentials.url"), token: read("admin.token"), house }
    }

    fn send_request(&self, method: &str, url: &str, body: Option<&Value>) -> Response {
        let file = self.house.path("body.json");
        let (url, authorization) = (url.to_owned(), format!("authorization: Bearer {}", self.token));
        let data = format!("@{}", file.display());
        let mut arguments =
            vec!["-sk", "-w", "\n%{http_code}", "-X", method, "-H", authorization.as_str(), url.as_str()];
        if let Some(body) = body {
            std::fs::write(&file, body.to_string()).unwrap();
            arguments.extend(["-H", "content-type: application/json", "--data-binary", data.as_str()]);
        }
        let output = self.house.program("curl", "apt-get install -y curl", &arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
        Response(status.parse().unwrap(), body.to_owned())
    }

    fn put(&self, name: &str) -> Response {
        let body = json!({ "name": name, "type": "value", "value": "x".repeat(VALUE_BYTES) });
        self.send_request("PUT", &format!("{}/api/v1/data", self.credentials), Some(&body))
    }

    fn get(&self, path: &str) -> Response {
        self.send_request("GET", &format!("{}{path}", self.house.url()), None)
    }

    /// Returns the path of a file that only uses space.
    fn ballast(&self) -> PathBuf {
        self.house.path("data/ballast")
    }

    /// Fills the disk completely.
    fn fill(&self) {
        let mut file = std::fs::OpenOptions::new().append(true).open(self.ballast()).unwrap();
        while file.write_all(&[0; 4_096]).is_ok() {}
    }

    /// Checks reads on a full disk: `/readyz` gives the reason, and the API, a CRL and OCSP answer.
    fn reads(&self) {
        let ready = self.get("/readyz");
        assert_eq!(ready.0, 503, "{}", ready.1);
        assert!(ready.json()["type"].as_str().unwrap().ends_with("/disk-full"), "{}", ready.1);
        let detail = ready.json()["detail"].as_str().unwrap().to_owned();
        let file = self.house.path("data/inventory.db");
        assert!(
            detail.contains(&format!("the disk of {} (0 bytes free) is full", file.display())),
            "{detail}"
        );
        let authorities = self.get("/api/v1/authorities");
        assert_eq!(authorities.0, 200, "{}", authorities.1);
        let listed = self.send_request("GET", &format!("{}/api/v1/data?path=/", self.credentials), None);
        assert_eq!(listed.0, 200, "{}", listed.1);
        self.is_not_revoked();
    }

    /// Checks that the server's own certificate is good, by CRL and OCSP.
    fn is_not_revoked(&self) {
        let script = format!(
            "set -e\n\
             openssl s_client -connect 127.0.0.1:{} -showcerts </dev/null 2>/dev/null >presented.txt\n\
             awk '/BEGIN CERT/{{n++}} n{{print > (\"presented-\" n \".pem\")}} /END CERT/{{if (n==2) exit}}' presented.txt\n\
             openssl x509 -in presented-1.pem -noout -ext crlDistributionPoints | sed -n 's/.*URI://p' | head -1 >crl.url\n\
             curl -sf \"$(cat crl.url)\" -o list.crl\n\
             openssl crl -inform DER -in list.crl -noout -lastupdate\n\
             openssl ocsp -issuer presented-2.pem -cert presented-1.pem -noverify -no_nonce \
                 -url \"$(openssl x509 -in presented-1.pem -noout -ocsp_uri)\"",
            self.house.port
        );
        let output = self.house.program("sh", "", &["-c", &script]);
        let response = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{response}{}", String::from_utf8_lossy(&output.stderr));
        assert!(response.contains("presented-1.pem: good"), "{response}");
    }
}

#[test]
fn full_disk_is_reported_reads_work_and_no_restart_is_needed() {
    alone(|| {
        let mut fixture = Fixture::new();
        std::fs::write(fixture.ballast(), vec![0; BALLAST_BYTES]).unwrap();
        let name = |number: usize| format!("/full/{number}");
        let acknowledged = (0..VALUES_MAX).find(|number| {
            let response = fixture.put(&name(*number));
            assert!(response.0 == 200 || response.0 == 507, "{}: {}", response.0, response.1);
            response.0 == 507
        });
        let acknowledged = acknowledged.expect("the disk is full before that");
        assert!(acknowledged > 10, "{acknowledged}");
        fixture.fill();
        for _ in 0..3 {
            let refused = fixture.put("/full/one-more");
            assert_eq!(refused.0, 507, "{}", refused.1);
            let error = refused.json()["error"].as_str().unwrap().to_owned();
            assert!(error.contains("inventory.db (0 bytes free)"), "{error}");
        }
        let url = format!("{}/api/v1/tokens", fixture.house.url());
        // Small writes still fit into the database's log for a while.
        let refused = (0..VALUES_MAX).find_map(|number| {
            let grants = [json!({ "role": "viewer", "scope": "any" })];
            let body = json!({ "name": format!("late-{number}"), "grants": grants });
            Some(fixture.send_request("POST", &url, Some(&body))).filter(|response| response.0 != 201)
        });
        let refused = refused.expect("a refusal");
        assert_eq!(refused.0, 507, "{}", refused.1);
        assert!(refused.json()["hint"].as_str().unwrap().contains("free space"), "{}", refused.1);
        fixture.reads();
        // A restart after a crash, and after a graceful shutdown.
        fixture.house.kill();
        fixture.house.start();
        fixture.reads();
        fixture.house.stop();
        fixture.house.start();
        fixture.reads();
        // A value is only returned if the read can be recorded.
        let value = |fixture: &Fixture, number: usize| {
            fixture.send_request(
                "GET",
                &format!("{}/api/v1/data?name={}&current=true", fixture.credentials, name(number)),
                None,
            )
        };
        assert_eq!(value(&fixture, 0).0, 507);
        std::fs::remove_file(fixture.ballast()).unwrap();
        fixture.house.until("readiness without a restart", || fixture.get("/readyz").0 == 200);
        for number in 0..acknowledged {
            let response = value(&fixture, number);
            assert_eq!(response.0, 200, "{number}: {}", response.1);
            assert_eq!(response.json()["data"][0]["value"].as_str().unwrap().len(), VALUE_BYTES, "{number}");
        }
        assert_eq!(fixture.put("/full/late").0, 200);
        fixture.house.stop();
        fixture.house.start();
        assert_eq!(fixture.house.json(&["audit", "verify"])["good"], true);
    });
}
