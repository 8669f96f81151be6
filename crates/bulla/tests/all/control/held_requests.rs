//! Requests of the proxy in the same process, held and recent ones, in the API and in the console: `bulla up` with a policy, curl as the
//! agent and as the browser.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::House;
use crate::proxy::curl;
use crate::proxy_gateway::World;
use crate::world::{describe, run, stderr, stdout};

/// A rule's name with markup, which pages must escape.
const RULE: &str = "write<script>alert(1)</script>";

/// A server and a proxy in one process, before a server that echoes requests.
struct Gateway {
    world: World,
    house: House,
    port: u16,
}

impl Gateway {
    fn up() -> Self {
        Self::with("")
    }

    /// Starts with more keys of `[proxy]`.
    fn with(keys: &str) -> Self {
        let (world, port) = (World::new(), fleet::free_port());
        let more = format!(
            "[[proxy.policy.rules]]\nname = \"{RULE}\"\nteams = [\"platform\"]\nhost = [\"localhost\"]\nport = [{}]\n\
             method = [\"POST\"]\npath = [\"/repos/**\"]\naction = \"hold\"\nhold_for_s = 600\n",
            world.port
        );
        let ca = world.place.path("ca.pem").display().to_string();
        let text = world
            .configuration("\"127.0.0.0/8\", \"::1/128\"", &more)
            .replacen(
                "[proxy]\n",
                &format!("[proxy]\nlisten = \"127.0.0.1:{port}\"\nmetrics_listen = \"\"\n{keys}"),
                1,
            )
            .replacen("\"ca.pem\"", &format!("\"{ca}\""), 1)
            .replacen("[proxy.requests]\n", "[proxy.requests]\naudit_file = \"audit.jsonl\"\n", 1);
        let mut house = House::prepared(&text, None);
        house.environment("BULLA_ROLES", "server,proxy");
        house.start();
        Self { world, house, port }
    }

    /// Starts a `POST` of an agent through the proxy. Its output ends with the status.
    fn post(&self, who: &str, path: &str) -> Child {
        let address = format!("http://{who}:token-of-{who}@127.0.0.1:{}", self.port);
        let mut command = curl(&address, &self.house.path("data/proxy-ca.pem"));
        command.args(["--path-as-is", "-w", "\n%{http_code}", "-X", "POST", "--data", "body-of-the-agent"]);
        command.arg(self.world.url(path)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Sends a request to the API with a token. Returns the status and the JSON of the response.
    fn api(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut command = self.curl();
        command.args(["-X", method, "-H", &format!("Authorization: Bearer {token}"), &self.url(path)]);
        if let Some(body) = body {
            command.args(["-H", "Content-Type: application/json", "--data", &body.to_string()]);
        }
        let (text, status) = said(&mut command);
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Creates a token with a role.
    fn token(&self, name: &str, role: &str) -> String {
        let made = self.house.json(&["token", "create", name, "--role", role]);
        let made = made["rows"].get(0).unwrap_or(&made);
        made["token"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// Waits until a request is held, and returns it.
    fn held(&self, token: &str) -> Value {
        let mut found = Value::Null;
        self.house.until("a request is held", || {
            let (status, listing) = self.api(token, "GET", "/api/v1/proxy/held", None);
            assert_eq!(status, 200, "{listing}");
            found = listing["items"][0].clone();
            !found.is_null()
        });
        found
    }

    /// Returns curl to the server. Its output ends with the status.
    fn curl(&self) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "-w", "\n%{http_code}", "--cacert"]).arg(self.house.root());
        command.args(["-b", "jar", "-c", "jar"]).current_dir(self.house.path(""));
        command
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.house.url())
    }

    /// Gets a page of the console, with the session of the browser.
    fn page(&self, path: &str) -> (String, u16) {
        said(self.curl().arg(self.url(path)))
    }

    /// Submits a form of the console.
    fn form(&self, path: &str, fields: &[(&str, &str)]) -> (String, u16) {
        let mut command = self.curl();
        for (name, value) in fields {
            command.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        said(command.args(["-H", "Sec-Fetch-Site: same-origin", "-D", "-"]).arg(self.url(path)))
    }

    /// Signs in with a one-time link of the first admin.
    fn sign_in(&self) {
        let link = stdout(&self.house.does(&["console"]));
        let code = link.trim().rsplit_once("#code=").unwrap().1.to_owned();
        let (text, status) = self.form("/console/sign-in", &[("code", &code)]);
        assert_eq!(status, 303, "{text}");
    }

    /// Returns the number of requests that the upstream has received for `path`.
    fn seen(&self, path: &str) -> usize {
        self.world.seen.lock().unwrap().iter().filter(|head| head.contains(path)).count()
    }
}

/// Runs curl, and returns the output and the status.
fn said(command: &mut Command) -> (String, u16) {
    let output = run(command);
    assert!(output.status.success(), "{}", describe(&output));
    let text = stdout(&output);
    let (body, status) = text.rsplit_once('\n').unwrap();
    (body.to_owned(), status.parse().unwrap())
}

/// Waits for the end of an agent's request, and returns its body and status.
fn ended(request: Child) -> (String, String) {
    let output = request.wait_with_output().unwrap();
    let said = stdout(&output);
    let (body, status) = said.rsplit_once('\n').unwrap_or_else(|| panic!("{}", describe(&output)));
    (body.to_owned(), status.to_owned())
}

/// Returns the CSRF token in the form of a page.
fn csrf(page: &str) -> &str {
    page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap()
}

#[test]
fn api_decides_held_requests_of_a_proxy_without_a_control_socket() {
    let gateway = Gateway::with("control_socket = \"none\"\n");
    let approver = gateway.token("ann", "approver");
    let request = gateway.post("ci", "/repos/o/r");
    let path = format!("/api/v1/proxy/held/{}/approve", gateway.held(&approver)["id"].as_str().unwrap());
    let (status, said) = gateway.api(&approver, "POST", &path, Some(json!({})));
    assert_eq!(status, 200, "{said}");
    assert_eq!(ended(request).1, "200");
    assert!(!gateway.house.path("data/proxy.sock").exists());
}

#[test]
fn held_requests_are_decided_by_the_api_and_audited_with_the_person() {
    let gateway = Gateway::up();
    let approver = gateway.token("ann", "approver");
    let request = gateway.post("ci", "/repos/o/r?token=in-the-query");
    let held = gateway.held(&approver);
    let secret = gateway.world.place.path("secret").display().to_string();
    assert_eq!(
        (
            &held["identity"],
            &held["user"],
            &held["method"],
            &held["rule"],
            &held["url"],
            &held["credentials"]
        ),
        (
            &"ci".into(),
            &"ci".into(),
            &"POST".into(),
            &RULE.into(),
            &gateway.world.url("/repos/o/r").into(),
            &json!([secret])
        ),
        "{held}"
    );
    let path = format!("/api/v1/proxy/held/{}", held["id"].as_str().unwrap());
    for role in ["viewer", "operator", "issuer", "auditor"] {
        let token = gateway.token(role, role);
        let reads = if role == "auditor" { 200 } else { 403 };
        assert_eq!(gateway.api(&token, "GET", "/api/v1/proxy/held", None).0, reads, "{role}");
        assert_eq!(gateway.api(&token, "GET", &path, None).0, reads, "{role}");
        for action in ["approve", "reject"] {
            let decided = gateway.api(&token, "POST", &format!("{path}/{action}"), Some(json!({})));
            assert_eq!(decided.0, 403, "{role} {action}: {}", decided.1);
        }
    }
    // The sender has the name of the identity, in upper or lower case.
    for name in ["ci", "CI"] {
        let own = gateway.token(name, "approver");
        let (status, problem) = gateway.api(&own, "POST", &format!("{path}/approve"), Some(json!({})));
        assert!(status == 403 && problem["detail"].as_str().unwrap().contains("sender"), "{name}: {problem}");
    }
    let (status, problem) =
        gateway.api(&approver, "POST", &format!("{path}/approve"), Some(json!({ "for_s": 90_000 })));
    assert!(status == 422 && problem["detail"].as_str().unwrap().contains("86400"), "{problem}");
    let (_, one) = gateway.api(&approver, "GET", &path, None);
    assert!(one["allowing_rule"].as_str().unwrap().contains("path = [\"/repos/o/r\"]"), "{one}");
    assert_eq!(gateway.seen("/repos/"), 0, "nothing is sent");

    let (status, approved) =
        gateway.api(&approver, "POST", &format!("{path}/approve"), Some(json!({ "for_s": 3600 })));
    assert_eq!((status, &approved["sent"]), (200, &1.into()), "{approved}");
    assert_eq!(ended(request).1, "200");
    assert_eq!(
        gateway.api(&approver, "POST", &format!("{path}/approve"), Some(json!({}))).0,
        404,
        "it is decided"
    );
    // An equal request needs no approval, another one does.
    assert_eq!(ended(gateway.post("ci", "/repos/o/r")).1, "200");
    let request = gateway.post("other", "/repos/o/r");
    let held = gateway.held(&approver);
    assert_eq!((&held["identity"], &held["credentials"]), (&"other".into(), &json!([])), "it has no grant");
    let path = format!("/api/v1/proxy/held/{}/reject", held["id"].as_str().unwrap());
    let (status, text) = gateway.api(&approver, "POST", &path, Some(json!({ "reason": "not on Fridays" })));
    assert_eq!(status, 200, "{text}");
    let (body, status) = ended(request);
    assert!(status == "403" && body.contains("a person rejected it: not on Fridays"), "{body}");

    let events = |action: &str| gateway.house.json(&["audit", "list", "--action", action])["rows"].clone();
    let approvals = events("proxy-request.approve");
    assert_eq!(
        (approvals.as_array().unwrap().len(), &approvals[0]["actor"]),
        (1, &"token:ann".into()),
        "{approvals}"
    );
    assert_eq!(events("proxy-request.reject")[0]["actor"], "token:ann");
    let audit = std::fs::read_to_string(gateway.house.path("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("\"decided_by\":\"token:ann\"").count(), 3, "{audit}");
    assert!(!audit.contains("in-the-query"), "{audit}");
}

#[test]
fn held_requests_are_decided_in_the_console_with_escaped_text() {
    let gateway = Gateway::up();
    let (text, status) = gateway.page("/console/proxy/held");
    assert_eq!(status, 303, "nobody is signed in: {text}");
    gateway.sign_in();
    let (text, status) = gateway.page("/console/proxy/held");
    assert!(status == 200 && text.contains("No request is held"), "{text}");
    let request = gateway.post("ci", "/repos/o/'\"onmouseover=alert(1)?key=in-the-query");
    let mut text = String::new();
    gateway.house.until("the request is on the page", || {
        text = gateway.page("/console/proxy/held").0;
        text.contains("/repos/o/")
    });
    let listed = text;
    let link = listed.split("href=\"").find(|rest| rest.starts_with("/console/proxy/held/")).unwrap();
    let link = link.split('"').next().unwrap();
    let (page, status) = gateway.page(link);
    assert_eq!(status, 200, "{page}");
    for text in [&listed, &page] {
        assert!(text.contains("write&#60;script&#62;alert(1)") && !text.contains("<script>alert"), "{text}");
        assert!(!text.contains("'\"onmouseover") && !text.contains("in-the-query"), "{text}");
        assert!(!text.contains("canary-of-the-gateway"), "the credential is not shown: {text}");
    }
    let secret = gateway.world.place.path("secret").display().to_string();
    assert!(page.contains(&secret), "the name of the credential is shown: {page}");
    let approve = format!("{link}/approve");
    let (refused, status) = gateway.form(&approve, &[("csrf", "another"), ("for_s", "")]);
    assert_eq!(status, 403, "{refused}");
    assert_eq!(gateway.seen("/repos/"), 0, "nothing is sent");
    let (done, status) = gateway.form(&approve, &[("csrf", csrf(&page)), ("for_s", "")]);
    assert!(status == 303 && done.contains("/console/proxy/held?done=approved"), "{done}");
    assert_eq!(ended(request).1, "200");

    let request = gateway.post("other", "/repos/o/r");
    let held = gateway.held(&gateway.token("reader", "auditor"));
    let page = format!("/console/proxy/held/{}", held["id"].as_str().unwrap());
    let (text, _) = gateway.page(&page);
    let fields = [("csrf", csrf(&text)), ("reason", "not today")];
    let (done, status) = gateway.form(&format!("{page}/reject"), &fields);
    assert!(status == 303 && done.contains("done=rejected"), "{done}");
    let (body, status) = ended(request);
    assert!(status == "403" && body.contains("not today"), "{body}");
    let rejected = gateway.house.json(&["audit", "list", "--action", "proxy-request.reject"])["rows"].clone();
    assert_eq!(rejected[0]["actor"], "token:first-admin", "{rejected}");
    let (text, status) = gateway.page(&page);
    assert!(status == 404 && text.contains("somebody decided"), "{text}");
    // The control socket of the same proxy works as well.
    let none = gateway.house.does(&["proxy", "held"]);
    assert!(stderr(&none).contains("no results"), "{}", describe(&none));
}

#[test]
fn recent_requests_are_listed_without_query_and_make_a_rule() {
    let gateway = Gateway::up();
    let auditor = gateway.token("reader", "auditor");
    let list = |query: &str| {
        let (status, listing) = gateway.api(&auditor, "GET", &format!("/api/v1/proxy/requests{query}"), None);
        assert_eq!(status, 200, "{listing}");
        listing["items"].as_array().unwrap().clone()
    };
    assert_eq!(list(""), Vec::<Value>::new());
    let get = |who: &str, path: &str| {
        let address = format!("http://{who}:token-of-{who}@127.0.0.1:{}", gateway.port);
        let mut command = curl(&address, &gateway.house.path("data/proxy-ca.pem"));
        let output = run(command.args(["-w", "\n%{http_code}", "--path-as-is", &gateway.world.url(path)]));
        stdout(&output).rsplit_once('\n').unwrap().1.to_owned()
    };
    assert_eq!(get("ci", "/repos/o/r?key=in-the-query"), "200");
    assert_eq!(get("other", "/admin/'\"onmouseover=alert(1)?key=in-the-query"), "403");
    let mut all = Vec::new();
    gateway.house.until("both requests have ended", || {
        all = list("");
        all.len() == 2 && all.iter().all(|one| !one["duration_ms"].is_null())
    });
    let [denied, allowed] = &*all else { panic!("{all:?}") };
    assert_eq!(
        (
            &allowed["identity"],
            &allowed["decision"],
            &allowed["policy_rule"],
            &allowed["status"],
            &allowed["path"]
        ),
        (&"ci".into(), &"allow".into(), &"read".into(), &200.into(), &"/repos/o/r".into()),
        "{allowed}"
    );
    assert_eq!(
        (&allowed["host"], &allowed["port"]),
        (&"localhost".into(), &gateway.world.port.into()),
        "{allowed}"
    );
    assert!(
        allowed["bytes_to_client"].as_u64() > Some(0) && allowed["credentials"][0].is_string(),
        "{allowed}"
    );
    assert_eq!(
        (&denied["decision"], &denied["reason"], &denied["status"]),
        (&"deny".into(), &"default".into(), &403.into())
    );
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains("in-the-query") && !text.contains("canary-of-the-gateway"), "{text}");
    assert_eq!(list("?denied=true"), std::slice::from_ref(denied));
    assert_eq!(list("?identity=ci&host=local"), std::slice::from_ref(allowed));
    assert_eq!(list("?host=elsewhere"), Vec::<Value>::new());
    for role in ["viewer", "operator"] {
        let token = gateway.token(role, role);
        assert_eq!(gateway.api(&token, "GET", "/api/v1/proxy/requests", None).0, 403, "{role}");
    }

    gateway.sign_in();
    let (page, status) = gateway.page("/console/proxy/requests?denied=true");
    assert!(status == 200 && page.contains("/admin/") && !page.contains("/repos/o/r"), "{page}");
    assert!(page.contains("data-every=\"2\"") && page.contains("denied=true&#38;paused=true"), "{page}");
    let (paused, _) = gateway.page("/console/proxy/requests?paused=true");
    assert!(!paused.contains("data-every") && paused.contains("/repos/o/r"), "{paused}");
    let id = allowed["id"].as_str().unwrap();
    let (one, status) = gateway.page(&format!("/console/proxy/requests/{id}"));
    assert!(status == 200 && one.contains("path = [&#34;/repos/o/r&#34;]"), "{one}");
    let (denied, _) = gateway.page(&format!("/console/proxy/requests/{}", denied["id"].as_str().unwrap()));
    for page in [&page, &paused, &one, &denied] {
        assert!(!page.contains("'\"onmouseover") && !page.contains("in-the-query"), "{page}");
    }
}
