//! Tests of setting, reading, generating and finding values.

use std::sync::Arc;

use api::credhub::Bindings;
use credentials::tables::{NewCredentialVersion, Put, put_credential_versions};
use credentials::{
    CaVersions, CredentialError, GenerateRequest, Kind, Mode, Name, Operations, Parameters,
    PasswordParameters, PermissionPath, Requester, SearchFilter, SetRequest, Value, Version,
};
use keys::SecretJson;
use serde_json::json;

use crate::fixture::{Fixture, admin, client, name};

/// Number of SQL statements that log a read: the chain, its records, its new end.
const LOGGING: u64 = 3;

pub(crate) fn password(at: &str, length: u32, mode: Mode) -> GenerateRequest {
    let parameters = PasswordParameters { length, ..PasswordParameters::default() };
    GenerateRequest::new(name(at), Parameters::Password(parameters), mode)
}

pub(crate) async fn each_credential_type_is_returned_as_set(fixture: Fixture) {
    let pair = json!({ "public_key": "ssh-rsa AAAA a", "private_key": "p" });
    let cases = [
        (Kind::Value, json!("text"), json!("text")),
        (Kind::Password, json!("secret"), json!("secret")),
        (Kind::Json, json!({ "a": [1, null] }), json!({ "a": [1, null] })),
        (Kind::Json, json!(7), json!(7)),
        (Kind::Rsa, pair.clone(), pair.clone()),
    ];
    for (number, (kind, given, response)) in cases.into_iter().enumerate() {
        let at = format!("/types/{number}");
        let metadata = Some(json!({ "number": number }));
        let request = SetRequest {
            name: name(&at),
            kind,
            value: given.into(),
            metadata: metadata.clone(),
            expected: None,
            expected_number: None,
            ttl_s: None,
        };
        let set = fixture.credentials.set(&admin(), request).await.unwrap();
        let read = fixture.credentials.current(&admin(), &name(&at)).await.unwrap().remove(0);
        assert_eq!(
            (
                read.id,
                &read.metadata,
                read.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap()
            ),
            (set.id, &metadata, response),
            "{kind}"
        );
        assert_eq!(fixture.credentials.version(&admin(), set.id).await.unwrap(), read);
    }
    let user = fixture.set("/types/user", Kind::User, json!({ "username": "u", "password": "p" })).await;
    let response = user.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap();
    assert_eq!((&response["username"], &response["password"]), (&json!("u"), &json!("p")));
    // Equals the output of `openssl passwd -6` with this salt.
    let hash = response["password_hash"].as_str().unwrap();
    let salt = hash.split('$').nth(2).unwrap();
    let openssl = std::process::Command::new("openssl").args(["passwd", "-6", "-salt", salt, "p"]).output();
    assert_eq!(String::from_utf8(openssl.unwrap().stdout).unwrap().trim(), hash);
    let second = fixture.credentials.current(&admin(), &name("/types/user")).await.unwrap().remove(0);
    assert_eq!(
        second.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap(),
        response,
        "the hash stays"
    );
    // printf '\0\0\0' | openssl dgst -sha256 -binary | base64
    let ssh = fixture.set("/types/ssh", Kind::Ssh, pair).await;
    assert_eq!(
        ssh.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap()["public_key_fingerprint"],
        json!("cJ6AyISHokEeHuTfufIqhhSS0gxHZRUMDHlKvXD4FHw")
    );
    for (kind, value) in [
        (Kind::Value, json!("")),
        (Kind::Password, json!(null)),
        (Kind::User, json!({ "username": "u" })),
        (Kind::Rsa, json!({})),
        (Kind::Ssh, json!({ "public_key": "" })),
        (Kind::User, json!({ "password": "p", "more": 1 })),
    ] {
        let request = SetRequest::new(name("/bad"), kind, value);
        let error = fixture.credentials.set(&admin(), request).await.unwrap_err();
        assert!(matches!(error, CredentialError::Bad(_)), "{kind}: {error}");
    }
    assert!(fixture.credentials.current(&admin(), &name("/bad")).await.is_err(), "nothing was stored");
}

pub(crate) async fn versions_are_listed_newest_first_up_to_the_limit(fixture: Fixture) {
    for number in 0..20 {
        fixture.set("/many", Kind::Value, json!(number.to_string())).await;
    }
    let read = |most| {
        let credentials = fixture.credentials.clone();
        async move {
            let versions = credentials.versions(&admin(), &name("/many"), most).await.unwrap();
            versions
                .into_iter()
                .map(|version| version.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap())
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(read(Some(2)).await, [json!("19"), json!("18")]);
    assert_eq!(read(None).await.len(), 20);
    let current = fixture.credentials.current(&admin(), &name("/many")).await.unwrap();
    assert_eq!(
        (current.len(), current[0].value.response(CaVersions::All).parse::<serde_json::Value>().unwrap()),
        (1, json!("19"))
    );
}

pub(crate) async fn credential_type_is_fixed_until_deletion(fixture: Fixture) {
    fixture.set("/typed", Kind::Value, json!("a")).await;
    let other = SetRequest {
        name: name("/TYPED"),
        kind: Kind::Password,
        value: json!("b").into(),
        metadata: None,
        expected: None,
        expected_number: None,
        ttl_s: None,
    };
    let error = fixture.credentials.set(&admin(), other.clone()).await.unwrap_err();
    assert!(matches!(error, CredentialError::OtherType), "{error}");
    let error = fixture.credentials.generate(&admin(), password("/typed", 30, Mode::Converge)).await;
    assert!(matches!(error.unwrap_err(), CredentialError::OtherType));
    fixture.credentials.delete(&admin(), &name("/typed")).await.unwrap();
    let deleted = fixture.credentials.delete(&admin(), &name("/typed")).await.unwrap_err();
    assert!(matches!(deleted, CredentialError::NotFound));
    assert_eq!(fixture.credentials.set(&admin(), other).await.unwrap().name, "/TYPED");
    // Two concurrent writes of different types: only one type is stored.
    let set = |kind| {
        let request = SetRequest::new(name("/race"), kind, json!("x"));
        let credentials = fixture.credentials.clone();
        async move { credentials.set(&admin(), request).await }
    };
    let (one, two) = tokio::join!(set(Kind::Value), set(Kind::Password));
    assert_ne!(one.is_ok(), two.is_ok(), "{one:?} {two:?}");
}

pub(crate) async fn set_requires_the_expected_version(fixture: Fixture) {
    let set = |expected| {
        let credentials = fixture.credentials.clone();
        async move {
            let request = SetRequest {
                name: name("/cas"),
                kind: Kind::Value,
                value: json!("x").into(),
                metadata: None,
                expected,
                expected_number: None,
                ttl_s: None,
            };
            credentials.set(&admin(), request).await
        }
    };
    let absent = set(Some(Some(uuid::Uuid::nil()))).await.unwrap_err();
    assert!(matches!(absent, CredentialError::Changed), "{absent}");
    assert!(fixture.credentials.current(&admin(), &name("/cas")).await.is_err(), "no name without a version");
    let first = set(Some(None)).await.unwrap();
    assert!(matches!(set(Some(None)).await.unwrap_err(), CredentialError::Changed));
    let (one, two) = tokio::join!(set(Some(Some(first.id))), set(Some(Some(first.id))));
    assert_ne!(one.is_ok(), two.is_ok(), "one of two that saw the same version");
}

pub(crate) async fn generation_mode_decides_whether_a_new_value_is_generated(fixture: Fixture) {
    let make = |length, mode| {
        let credentials = fixture.credentials.clone();
        async move { credentials.generate(&admin(), password("/made", length, mode)).await.unwrap() }
    };
    let first = make(40, Mode::NoOverwrite).await;
    let Value::Password(text) = &first.value else { panic!("{:?}", first.value) };
    assert_eq!(text.expose().len(), 40);
    assert_eq!(make(50, Mode::NoOverwrite).await.id, first.id);
    assert_eq!(make(40, Mode::Converge).await.id, first.id, "the same parameters");
    let other = make(50, Mode::Converge).await;
    assert_ne!(other.id, first.id, "others");
    let second = make(50, Mode::Overwrite).await;
    assert_ne!(second.id, other.id);
    let regenerated = fixture.credentials.regenerate(&admin(), &name("/made"), None).await.unwrap();
    let Value::Password(text) = &regenerated.value else { panic!("{:?}", regenerated.value) };
    assert_eq!(text.expose().len(), 50, "as it was made");
    fixture.set("/set", Kind::Password, json!("static")).await;
    let error = fixture.credentials.regenerate(&admin(), &name("/set"), None).await.unwrap_err();
    assert!(error.to_string().starts_with("The password could not be regenerated"), "{error}");
    let unchanged =
        fixture.credentials.generate(&admin(), password("/set", 30, Mode::Converge)).await.unwrap();
    assert_eq!(
        unchanged.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap(),
        json!("static"),
        "what was set has no parameters that could differ"
    );
    // No RSA key is generated if it would not be stored. Generating one takes at least ten times this limit.
    let rsa = || GenerateRequest {
        name: name("/rsa"),
        parameters: Parameters::Rsa(credentials::RsaParameters { key_length: 4_096 }),
        mode: Mode::NoOverwrite,
        metadata: None,
        ttl_s: None,
    };
    let first = fixture.credentials.generate(&admin(), rsa()).await.unwrap();
    let sent = fixture.store.statements_sent();
    for _ in 0..50 {
        assert_eq!(fixture.credentials.generate(&admin(), rsa()).await.unwrap().id, first.id);
    }
    let sent = fixture.store.statements_sent() - sent;
    assert!(sent <= 50 * (1 + LOGGING), "one statement each, and nothing written but the log: {sent}");
}

pub(crate) async fn concurrent_no_overwrite_generation_creates_one_value(fixture: Fixture) {
    for round in 0..10 {
        let at = format!("/once/{round}");
        let admin = admin();
        let make = || fixture.credentials.generate(&admin, password_of(&at));
        let (one, two, three) = tokio::join!(make(), make(), make());
        let ids = [one.unwrap().id, two.unwrap().id, three.unwrap().id];
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(fixture.credentials.versions(&admin, &name(&at), None).await.unwrap().len(), 1);
    }
}

fn password_of(at: &str) -> GenerateRequest {
    password(at, 30, Mode::NoOverwrite)
}

pub(crate) async fn concurrent_writes_share_transactions(fixture: Fixture) {
    const WRITERS: usize = 200;
    let all = (0..WRITERS).map(|number| {
        let credentials = fixture.credentials.clone();
        tokio::spawn(async move {
            let request = SetRequest {
                name: name(&format!("/side/{}", number % 50)),
                kind: Kind::Value,
                value: json!(number.to_string()).into(),
                metadata: None,
                expected: None,
                expected_number: None,
                ttl_s: None,
            };
            credentials.set(&admin(), request).await.unwrap().id
        })
    });
    let mut ids = Vec::new();
    for one in all.collect::<Vec<_>>() {
        ids.push(one.await.unwrap());
    }
    let mut stored = Vec::new();
    for number in 0..50 {
        let at = name(&format!("/side/{number}"));
        stored.extend(
            fixture.credentials.versions(&admin(), &at, None).await.unwrap().into_iter().map(|v| v.id),
        );
    }
    ids.sort();
    stored.sort();
    assert_eq!(ids, stored, "all that was acknowledged, once");
    // The number of statements does not depend on the number of writes: names, their rows, versions, current versions, and the
    // transaction.
    let row = |number: usize| NewCredentialVersion {
        requester: admin(),
        name: format!("/set/{number}"),
        name_key: format!("/set/{number}"),
        kind: Kind::Value,
        version: uuid::Uuid::now_v7(),
        at_us: 1,
        sealed: vec![1; 100],
        metadata: None,
        parameters: None,
        facts: None,
        not_after_us: None,
        transitional: false,
        signed_by: None,
        expected: None,
        expected_number: None,
        ends_at_us: None,
        keep: None,
    };
    let rows: Arc<[NewCredentialVersion]> = (0..WRITERS).map(row).collect();
    let before = fixture.store.statements_sent();
    let put = fixture
        .store
        .write("put", move |tx| Box::pin(async move { put_credential_versions(tx, &rows).await }));
    assert!(put.await.unwrap().iter().all(|fate| matches!(fate, Put::Stored { .. })));
    let sent = fixture.store.statements_sent() - before;
    assert!(sent <= 6, "{sent} statements for {WRITERS} versions");
}

pub(crate) async fn lookup_of_many_names_uses_one_statement(fixture: Fixture) {
    fixture.set("/team/x", Kind::Value, json!("team")).await;
    fixture.set("/team/pipeline/y", Kind::Value, json!("pipeline")).await;
    let before = fixture.store.statements_sent();
    let names = ["/team/pipeline/x", "/TEAM/x", "/team/pipeline/y", "/team/y"].map(name);
    let found = fixture.credentials.lookup(&admin(), &names).await.unwrap();
    assert_eq!(fixture.store.statements_sent() - before, 1 + LOGGING);
    let found: Vec<_> = found
        .into_iter()
        .map(|one| {
            one.map(|version| {
                version.unwrap().value.response(CaVersions::All).parse::<serde_json::Value>().unwrap()
            })
        })
        .collect();
    assert_eq!(found, [None, Some(json!("team")), Some(json!("pipeline")), None]);
    let many: Vec<_> = (0..1_001).map(|number| name(&format!("/n{number}"))).collect();
    assert!(fixture.credentials.lookup(&admin(), &many).await.is_err(), "bounded");
}

async fn interpolated(
    fixture: &Fixture,
    services: &serde_json::Value,
) -> Result<SecretJson, CredentialError> {
    let text = services.to_string();
    fixture.credentials.interpolate(&admin(), &Bindings::parse(&text).unwrap()).await
}

/// JSON that a parsed `Value` would change: order, a number beyond `f64`, the text of a number, white space, an escape, a name twice.
const EXACT: &str =
    "{\"z\":12345678901234567890123,\"a\":{\"d\":1.10,\"c\":1e2},  \"u\":\"\\u00e9\\/\",\n\"t\":1,\"t\":2}";

pub(crate) async fn json_values_are_returned_byte_for_byte(fixture: Fixture) {
    let store = &fixture.credentials;
    let exact = || SecretJson::new(EXACT.to_owned()).unwrap();
    let text = |version: &Version| version.value.response(CaVersions::All).expose().to_owned();
    let set = store.set(&admin(), SetRequest::new(name("/exact"), Kind::Json, exact())).await.unwrap();
    let read = store.current(&admin(), &name("/exact")).await.unwrap().remove(0);
    assert_eq!((text(&set).as_str(), text(&read).as_str()), (EXACT, EXACT));
    let wrapped = store.wrap(&admin(), &name("/exact"), 60).await.unwrap();
    let unwrapped = store.unwrap("b", wrapped.token.expose()).await.unwrap();
    assert_eq!(unwrapped.value.response(CaVersions::All).expose(), EXACT);
    let services = r#"{ "p": [{"n":1.10,"credentials":{"credhub-ref":"/exact"}}] }"#;
    let done = store.interpolate(&admin(), &Bindings::parse(services).unwrap()).await.unwrap();
    assert_eq!(done.expose(), services.replace(r#"{"credhub-ref":"/exact"}"#, EXACT));

    // A patch changes only the members that it names.
    store.set_fields(&admin(), name("/kept"), exact(), None).await.unwrap();
    let patch = SecretJson::new(r#"{"b":2e1,"a":{"c":null},"u":1.0}"#.to_owned()).unwrap();
    let patched = store.patch_fields(&admin(), &name("/kept"), &patch, None).await.unwrap();
    let expected = r#"{"z":12345678901234567890123,"a":{"d":1.10},"u":1.0,"t":2,"b":2e1}"#;
    assert_eq!(text(&patched), expected);

    // A number as a text keeps its digits. JSON that clients could not read is rejected.
    let number = SecretJson::new("12345678901234567890123".to_owned()).unwrap();
    let version = store.set(&admin(), SetRequest::new(name("/n"), Kind::Value, number)).await.unwrap();
    assert_eq!(text(&version), "\"12345678901234567890123\"");
    for bad in
        ["1e999".to_owned(), format!("{}{}", "[".repeat(200), "]".repeat(200)), r#""\ud800""#.to_owned()]
    {
        let value = SecretJson::new(bad.clone()).unwrap();
        let refused = store.set(&admin(), SetRequest::new(name("/bad"), Kind::Json, value)).await;
        assert!(matches!(refused, Err(CredentialError::Bad(_))), "{bad}");
        let patch = SecretJson::new(format!("{{\"a\":{bad}}}")).unwrap();
        let refused = store.patch_fields(&admin(), &name("/kept"), &patch, None).await;
        assert!(matches!(refused, Err(CredentialError::Bad(_))), "{bad}");
    }
}

pub(crate) async fn credential_references_are_interpolated(fixture: Fixture) {
    fixture.set("/svc/one", Kind::Json, json!({ "uri": "a" })).await;
    fixture.set("/svc/two", Kind::Json, json!({ "uri": "b" })).await;
    fixture.set("/svc/text", Kind::Value, json!("c")).await;
    let services = json!({ "p-one": [
        { "credentials": { "credhub-ref": "((/svc/one))" }, "label": "x" },
        { "credentials": { "credhub_ref": "/svc/two" } },
        { "credentials": { "plain": 1 } },
    ], "p-two": [{ "credentials": { "credhub-ref": "/svc/one" } }] });
    let before = fixture.store.statements_sent();
    let done = interpolated(&fixture, &services).await.unwrap().parse::<serde_json::Value>().unwrap();
    assert_eq!(fixture.store.statements_sent() - before, 1 + LOGGING);
    assert_eq!(
        done,
        json!({ "p-one": [
            { "credentials": { "uri": "a" }, "label": "x" },
            { "credentials": { "uri": "b" } },
            { "credentials": { "plain": 1 } },
        ], "p-two": [{ "credentials": { "uri": "a" } }] })
    );
    let of = |to: &str| json!({ "p": [{ "credentials": { "credhub-ref": to } }] });
    let error = interpolated(&fixture, &of("/svc/text")).await.unwrap_err();
    assert!(error.to_string().contains("must be of type 'JSON'"), "{error}");
    let error = interpolated(&fixture, &of("/svc/none")).await.unwrap_err();
    assert!(matches!(error, CredentialError::NotFound));
}

pub(crate) async fn names_are_found_by_path_and_by_substring(fixture: Fixture) {
    for at in ["/a/b", "/a/b/c", "/a/bc", "/a_b/x", "/axb/x", "/A/D"] {
        fixture.set(at, Kind::Value, json!("x")).await;
        fixture.advance(1);
    }
    let find = |what: SearchFilter| {
        let credentials = fixture.credentials.clone();
        async move {
            let found = credentials.find(&admin(), &what, None).await.unwrap();
            found.into_iter().map(|one| one.name).collect::<Vec<_>>()
        }
    };
    let path = |text: &str| SearchFilter::Path(text.to_owned());
    let like = |text: &str| SearchFilter::NameLike(text.to_owned());
    assert_eq!(find(path("/a")).await, ["/A/D", "/a/bc", "/a/b/c", "/a/b"], "newest first, whole segments");
    assert_eq!(find(path("/A/B/")).await, ["/a/b/c"]);
    assert_eq!(find(path("/")).await.len(), 6);
    assert_eq!(find(path("/none")).await, Vec::<String>::new());
    assert_eq!(find(like("B/C")).await, ["/a/b/c"]);
    assert_eq!(find(like("a_b")).await, ["/a_b/x"], "an underscore is itself");
    assert_eq!(find(like("%")).await.len(), 6, "a percent sign is anything, as in CredHub");
    assert_eq!(find(like("\\")).await, Vec::<String>::new());
    let exactly = fixture.credentials.find_exactly(&admin(), &name("/A/B")).await.unwrap().unwrap();
    assert_eq!(exactly.name, "/a/b");
    assert!(
        fixture.credentials.find_exactly(&admin(), &name("/a")).await.unwrap().is_none(),
        "no prefix of it"
    );
}

/// Returns the names that a search finds, sorted.
async fn like(fixture: &Fixture, requester: &Requester, text: &str) -> Vec<String> {
    let found =
        fixture.credentials.find(requester, &SearchFilter::NameLike(text.to_owned()), None).await.unwrap();
    let mut names: Vec<String> = found.into_iter().map(|one| one.name).collect();
    names.sort();
    names
}

pub(crate) async fn substring_search_finds_text_anywhere_in_the_name(fixture: Fixture) {
    for at in ["/main/x", "/main/x-longer", "/a/main/x", "/a/b/Main/X/y", "/mainx", "/main/y", "/x/main"] {
        fixture.set(at, Kind::Value, json!("v")).await;
        fixture.advance(1);
    }
    // Matches at the start, in the middle and at the end of a name, case-insensitively.
    let with = ["/a/b/Main/X/y", "/a/main/x", "/main/x", "/main/x-longer"];
    assert_eq!(like(&fixture, &admin(), "/main/x").await, with);
    assert_eq!(like(&fixture, &admin(), "/MAIN/X").await, with);
    assert_eq!(like(&fixture, &admin(), "ain/x").await, with, "without the slash");
    assert_eq!(like(&fixture, &admin(), "/a/").await, ["/a/b/Main/X/y", "/a/main/x"]);
    assert_eq!(like(&fixture, &admin(), "in").await.len(), 7, "too short for the index");
    assert_eq!(like(&fixture, &admin(), "/").await.len(), 7);
    assert_eq!(like(&fixture, &admin(), "/a%main").await, ["/a/b/Main/X/y", "/a/main/x"]);
    assert_eq!(like(&fixture, &admin(), "/main/x/nothing").await, [""; 0]);
    assert_eq!(like(&fixture, &admin(), "\"main").await, [""; 0]);
    let found = fixture
        .credentials
        .find(&admin(), &SearchFilter::NameLike("/Main/x".to_owned()), None)
        .await
        .unwrap();
    assert_eq!(found[0].name, "/main/x", "the name itself comes first, whatever is newer");
    let found =
        fixture.credentials.find(&admin(), &SearchFilter::NameLike("ain/x".to_owned()), None).await.unwrap();
    assert_eq!(found[0].name, "/a/b/Main/X/y", "otherwise the newest");
    // Names without read permission are not found.
    assert_eq!(like(&fixture, &client("c"), "/main/x").await, [""; 0]);
    let (below, read) = (PermissionPath::parse("/a/*").unwrap(), Operations::parse(&["read"]).unwrap());
    fixture.credentials.grant(&admin(), "uaa-client:c", &below, read).await.unwrap();
    assert_eq!(like(&fixture, &client("c"), "/main/x").await, ["/a/b/Main/X/y", "/a/main/x"]);
    // A deleted name is not found. After undeletion it is found again.
    fixture.credentials.delete(&admin(), &name("/a/main/x")).await.unwrap();
    assert_eq!(like(&fixture, &admin(), "/main/x").await, ["/a/b/Main/X/y", "/main/x", "/main/x-longer"]);
    assert_eq!(like(&fixture, &admin(), "a/main").await, [""; 0]);
    fixture.credentials.undelete(&admin(), &name("/a/main/x")).await.unwrap();
    assert_eq!(like(&fixture, &admin(), "/main/x").await, with);
    assert_eq!(like(&fixture, &admin(), "a/main").await, ["/a/main/x"]);
}

pub(crate) async fn search_for_a_whole_name_uses_one_statement(fixture: Fixture) {
    for at in 0..200 {
        fixture.set(&format!("/main/p/s{at}"), Kind::Value, json!("v")).await;
    }
    for (text, count, statements) in [("/main/p/s77", 1, 1), ("/main/p/none", 0, 1), ("/main/p", 200, 2)] {
        let before = fixture.store.statements_sent();
        assert_eq!(like(&fixture, &admin(), text).await.len(), count, "{text}");
        assert_eq!(fixture.store.statements_sent() - before, statements, "{text}");
    }
}

pub(crate) async fn lookup_responses_are_limited_to_64_mib(fixture: Fixture) {
    let value = json!("v".repeat(1_000_000));
    let names: Vec<Name> = (0..68).map(|number| name(&format!("/big/{number}"))).collect();
    let set = |name: &Name| SetRequest::new(name.clone(), Kind::Value, value.clone());
    for some in names.chunks(8) {
        let stored = some.iter().map(async |name| fixture.credentials.set(&admin(), set(name)).await);
        assert!(futures_util::future::join_all(stored).await.iter().all(Result::is_ok));
    }
    let lookup = async |names: &[Name]| fixture.credentials.lookup(&admin(), names).await;
    let refused = lookup(&names).await.unwrap_err();
    assert!(matches!(&refused, CredentialError::Bad(why) if why.contains("64 MiB")), "{refused}");
    assert!(lookup(&names[..66]).await.unwrap().iter().all(|one| one.as_ref().unwrap().is_ok()));
    // Repeated names count each time.
    let same = vec![names[0].clone(); 68];
    assert!(matches!(lookup(&same).await.unwrap_err(), CredentialError::Bad(_)));
    assert_eq!(lookup(&same[..66]).await.unwrap().len(), 66);
    let references: Vec<_> =
        same.iter().map(|name| json!({ "credentials": { "credhub-ref": name.as_str() } })).collect();
    let refused = interpolated(&fixture, &json!({ "service": references })).await.unwrap_err();
    assert!(refused.to_string().contains("64 MiB"), "{refused}");
}
