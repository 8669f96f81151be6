//! Requests of the proxy in the same process, held, recent and replayed ones, in the API and in the console: `bulla up` with a policy, curl as the
//! agent and as the browser.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::House;
use crate::proxy::curl;
use crate::proxy_gateway::{SECRET, World};
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
        let ca = world.fixture.path("ca.pem").display().to_string();
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

    /// Sends a `GET` of an agent through the proxy, and returns the status.
    fn get(&self, who: &str, path: &str) -> String {
        let address = format!("http://{who}:token-of-{who}@127.0.0.1:{}", self.port);
        let mut command = curl(&address, &self.house.path("data/proxy-ca.pem"));
        let output = run(command.args(["-w", "\n%{http_code}", "--path-as-is", &self.world.url(path)]));
        stdout(&output).rsplit_once('\n').unwrap().1.to_owned()
    }

    /// Sends a `GET` of an agent, and returns the API path of the request once it has ended.
    fn sent(&self, token: &str, who: &str, path: &str) -> String {
        self.get(who, path);
        let mut id = String::new();
        let path_only = path.split('?').next().unwrap();
        self.house.until("the request has ended", || {
            let (_, listing) = self.api(token, "GET", "/api/v1/proxy/requests", None);
            let newest = &listing["items"][0];
            id = newest["id"].as_str().unwrap_or_default().to_owned();
            newest["path"] == *path_only && newest["duration_ms"].is_u64()
        });
        format!("/api/v1/proxy/requests/{id}")
    }

    /// Sends a request to the API with a token. Returns the status and the JSON of the response.
    fn api(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut command = self.curl();
        command.args(["-X", method, "-H", &format!("Authorization: Bearer {token}"), &self.url(path)]);
        if let Some(body) = body {
            command.args(["-H", "Content-Type: application/json", "--data", &body.to_string()]);
        }
        let (text, status) = response(&mut command);
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
        response(self.curl().arg(self.url(path)))
    }

    /// Submits a form of the console.
    fn form(&self, path: &str, fields: &[(&str, &str)]) -> (String, u16) {
        let mut command = self.curl();
        for (name, value) in fields {
            command.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        response(command.args(["-H", "Sec-Fetch-Site: same-origin", "-D", "-"]).arg(self.url(path)))
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
fn response(command: &mut Command) -> (String, u16) {
    let output = run(command);
    assert!(output.status.success(), "{}", describe(&output));
    let text = stdout(&output);
    let (body, status) = text.rsplit_once('\n').unwrap();
    (body.to_owned(), status.parse().unwrap())
}

/// Waits for the end of an agent's request, and returns its body and status.
fn ended(request: Child) -> (String, String) {
    let output = request.wait_with_output().unwrap();
    let response = stdout(&output);
    let (body, status) = response.rsplit_once('\n').unwrap_or_else(|| panic!("{}", describe(&output)));
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
    let (status, response) = gateway.api(&approver, "POST", &path, Some(json!({})));
    assert_eq!(status, 200, "{response}");
    assert_eq!(ended(request).1, "200");
    assert!(!gateway.house.path("data/proxy.sock").exists());
}

#[test]
fn held_requests_are_decided_by_the_api_and_audited_with_the_person() {
    let gateway = Gateway::up();
    let approver = gateway.token("ann", "approver");
    let request = gateway.post("ci", "/repos/o/r?token=in-the-query");
    let held = gateway.held(&approver);
    let secret = gateway.world.fixture.path("secret").display().to_string();
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
        assert!(
            status == 403 && problem["detail"].as_str().unwrap().contains("has your name"),
            "{name}: {problem}"
        );
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
    let secret = gateway.world.fixture.path("secret").display().to_string();
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
    assert!(status == 404 && text.contains("it was decided"), "{text}");
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
    assert_eq!(gateway.get("ci", "/repos/o/r?key=in-the-query"), "200");
    assert_eq!(gateway.get("other", "/admin/'\"onmouseover=alert(1)?key=in-the-query"), "403");
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

#[test]
fn recent_request_is_replayed_as_its_client_with_a_new_credential() {
    let gateway = Gateway::up();
    let (approver, auditor) = (gateway.token("ann", "approver"), gateway.token("reader", "auditor"));
    let request = gateway.sent(&auditor, "ci", "/repos/o/r");
    let secret = gateway.world.fixture.path("secret").display().to_string();
    let replay = format!("{request}/replay");
    let (status, plan) = gateway.api(&auditor, "GET", &replay, None);
    assert_eq!(
        (status, &plan["identity"], &plan["method"], &plan["url"], &plan["decision"], &plan["policy_rule"]),
        (
            200,
            &"ci".into(),
            &"GET".into(),
            &gateway.world.url("/repos/o/r").into(),
            &"allow".into(),
            &"read".into()
        ),
        "{plan}"
    );
    assert_eq!(plan["credentials"], json!([secret]));
    for role in ["viewer", "operator", "issuer", "auditor"] {
        let token = gateway.token(role, role);
        assert_eq!(gateway.api(&token, "POST", &replay, None).0, 403, "{role}");
    }
    assert_eq!(gateway.seen("/repos/o/r"), 1, "nothing was sent again");
    let (status, sent) = gateway.api(&approver, "POST", &replay, None);
    assert_eq!(
        (status, &sent["status"], &sent["identity"], &sent["replayed_by"], &sent["credentials"]),
        (200, &200.into(), &"ci".into(), &"token:ann".into(), &json!([secret])),
        "{sent}"
    );
    assert!(request.ends_with(&format!("/{}", sent["replay_of"].as_str().unwrap())), "{sent}");
    {
        let seen = gateway.world.seen.lock().unwrap();
        let heads: Vec<&String> = seen.iter().filter(|head| head.contains("/repos/o/r")).collect();
        assert!(heads.len() == 2 && heads.iter().all(|head| head.contains(SECRET)), "{heads:?}");
        assert!(heads[1].contains("bulla-replay") && !heads[1].contains("curl"), "{heads:?}");
    }
    let events = gateway.house.json(&["audit", "list", "--action", "proxy-request.replay"])["rows"].clone();
    assert_eq!((events.as_array().unwrap().len(), &events[0]["actor"]), (1, &"token:ann".into()), "{events}");
    let audit = std::fs::read_to_string(gateway.house.path("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("\"replayed_by\":\"token:ann\"").count(), 1, "{audit}");

    let id = request.rsplit_once('/').unwrap().1;
    let replayed = gateway.house.does(&["proxy", "replay", id, "--yes", "-o", "json"]);
    assert!(stdout(&replayed).contains("token:first-admin"), "{}", describe(&replayed));
}

#[test]
fn request_that_the_proxy_cannot_send_as_the_client_is_not_replayed() {
    let gateway = Gateway::up();
    let approver = gateway.token("ann", "approver");
    let refused = |request: &str| {
        let replay = format!("{request}/replay");
        let (_, plan) = gateway.api(&approver, "GET", &replay, None);
        let (status, problem) = gateway.api(&approver, "POST", &replay, None);
        assert_eq!((status, &problem["detail"]), (409, &plan["refused"]), "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    };
    let query = gateway.sent(&approver, "ci", "/repos/o/query?key=in-the-query");
    assert!(refused(&query).contains("does not keep queries"));
    let denied = gateway.sent(&approver, "ci", "/repos/o/keys");
    assert!(refused(&denied).contains("denies the request: rule no-keys"), "{}", refused(&denied));
    let held = gateway.post("ci", "/repos/o/body");
    let id = gateway.held(&approver)["id"].as_str().unwrap().to_owned();
    assert_eq!(
        gateway.api(&approver, "POST", &format!("/api/v1/proxy/held/{id}/approve"), Some(json!({}))).0,
        200
    );
    assert_eq!(ended(held).1, "200");
    let (_, listing) = gateway.api(&approver, "GET", "/api/v1/proxy/requests?limit=1", None);
    let body = format!("/api/v1/proxy/requests/{}", listing["items"][0]["id"].as_str().unwrap());
    assert!(refused(&body).contains("does not keep bodies"));
    assert_eq!(gateway.api(&approver, "POST", "/api/v1/proxy/requests/9999/replay", None).0, 404);

    // The token of the client is replaced, so no client can authenticate as the one of this request.
    let request = gateway.sent(&approver, "ci", "/repos/o/token");
    assert_eq!(gateway.seen("/repos/o/token"), 1);
    let digest = |text: &str| x509::Fingerprint::of(text.as_bytes()).to_string();
    let file = gateway.house.path("bulla.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&digest("token-of-ci"), &digest("another"))).unwrap();
    gateway.house.until("the proxy has read the tokens", || gateway.get("ci", "/repos/o/again") != "200");
    assert!(refused(&request).contains("password or token was removed"), "{}", refused(&request));
    assert_eq!(gateway.seen("/repos/o/token"), 1, "nothing was sent again");
}

#[test]
fn replay_is_confirmed_in_the_console() {
    let gateway = Gateway::up();
    let auditor = gateway.token("reader", "auditor");
    let request = gateway.sent(&auditor, "ci", "/repos/o/'onmouseover=alert(1)");
    let page = request.replace("/api/v1/", "/console/");
    gateway.sign_in();
    let (one, _) = gateway.page(&page);
    assert!(one.contains(&format!("{page}/replay")), "{one}");
    let replay = format!("{page}/replay");
    let (plan, status) = gateway.page(&replay);
    assert!(status == 200 && plan.contains("Send it again") && plan.contains("localhost"), "{plan}");
    let secret = gateway.world.fixture.path("secret").display().to_string();
    assert!(plan.contains(&secret) && !plan.contains(SECRET) && !plan.contains("'onmouseover"), "{plan}");
    let (refused, status) = gateway.form(&replay, &[("csrf", "another")]);
    assert_eq!(status, 403, "{refused}");
    assert_eq!(gateway.seen("onmouseover"), 1, "nothing was sent again");
    let (done, status) = gateway.form(&replay, &[("csrf", csrf(&plan))]);
    assert!(status == 303 && done.contains("done=replayed"), "{done}");
    assert_eq!(gateway.seen("onmouseover"), 2);
    let to = done.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().trim().to_owned();
    let (new, _) = gateway.page(&to);
    assert!(new.contains("Sent again") && new.contains("token:first-admin") && new.contains(&page), "{new}");

    let request = gateway.sent(&auditor, "ci", "/repos/o/r?key=in-the-query");
    let (text, status) = gateway.page(&format!("{}/replay", request.replace("/api/v1/", "/console/")));
    assert!(
        status == 200 && text.contains("does not keep queries") && !text.contains("Send it again"),
        "{text}"
    );
}
