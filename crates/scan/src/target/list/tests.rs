use std::collections::{BTreeSet, HashSet};
use std::io::{Cursor, Read};

use super::*;
use crate::target::{Host, Ports, Protocol, ProtocolSource};

fn options() -> TargetOptions {
    TargetOptions::default()
}

fn targets(arguments: &[&str], options: TargetOptions) -> Targets {
    Targets::with_input(arguments.iter(), options, Box::new(Cursor::new(Vec::new())))
}

fn shown(arguments: &[&str], options: TargetOptions) -> Vec<String> {
    targets(arguments, options)
        .map(|item| item.map_or_else(|error| format!("refused: {error}"), |t| t.to_string()))
        .collect()
}

fn from_input(text: impl Into<Vec<u8>>) -> Vec<String> {
    Targets::with_input(["-"], options(), Box::new(Cursor::new(text.into())))
        .map(|item| item.map_or_else(|error| format!("refused: {error}"), |t| t.to_string()))
        .collect()
}

#[test]
fn target_without_port_or_scheme_defaults_to_port_443() {
    let with_ports = TargetOptions { ports: Some("443,8443".parse::<Ports>().unwrap()), ..options() };
    let with_smtp = TargetOptions { protocol: Some(Protocol::Smtp), ..options() };
    let cases: [(&[&str], TargetOptions, &[&str]); 8] = [
        (&["a.example"], options(), &["a.example:443"]),
        (&["a.example:25"], options(), &["smtp://a.example:25"]),
        (&["[2001:db8::1]:143"], options(), &["imap://[2001:db8::1]:143"]),
        (&["a.example"], with_ports.clone(), &["a.example:443", "a.example:8443"]),
        (&["a.example:9443"], with_ports.clone(), &["a.example:9443"]),
        (&["ldap://a.example"], with_ports, &["ldap://a.example:389"]),
        (&["a.example", "b.example:2525"], with_smtp, &["smtp://a.example:25", "smtp://b.example:2525"]),
        (
            &["192.0.2.1=a.example,b.example"],
            options(),
            &["192.0.2.1:443=a.example", "192.0.2.1:443=b.example"],
        ),
    ];
    for (arguments, options, expected) in cases {
        assert_eq!(shown(arguments, options), expected, "{arguments:?}");
    }
}

#[test]
fn protocol_source_is_recorded() {
    let source = |argument: &str, options: TargetOptions| {
        let target = targets(&[argument], options).next().unwrap().unwrap();
        (target.protocol, target.protocol_source)
    };
    assert_eq!(source("h:5432", options()), (Protocol::Postgres, ProtocolSource::GuessedFromPort));
    assert_eq!(source("postgres://h", options()), (Protocol::Postgres, ProtocolSource::Given));
    assert_eq!(source("h:8443", options()), (Protocol::Tls, ProtocolSource::Default));
    let forced = TargetOptions { protocol: Some(Protocol::Tls), ..options() };
    assert_eq!(source("h:25", forced), (Protocol::Tls, ProtocolSource::Given));
}

#[test]
fn sni_is_the_host_unless_a_server_name_is_given() {
    let names = |argument: &str| {
        let target = targets(&[argument], options()).next().unwrap().unwrap();
        (target.sni().map(str::to_owned), target.expected_name().to_owned())
    };
    assert_eq!(names("a.example"), (Some("a.example".into()), "a.example".into()));
    assert_eq!(names("192.0.2.1"), (None, "192.0.2.1".into()));
    assert_eq!(names("192.0.2.1=b.example"), (Some("b.example".into()), "b.example".into()));
    assert_eq!(shown(&["a.example=a.example"], options()), ["a.example:443"]);
}

#[test]
fn network_expands_to_each_address_port_and_name_once() {
    let options = TargetOptions {
        ports: Some("443,8443-8445".parse::<Ports>().unwrap()),
        server_names: vec![crate::target::HostName::parse("a.example").unwrap()],
        ..options()
    };
    let all = shown(&["10.9.0.0/24"], options);
    let distinct: HashSet<&String> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (1_024, 1_024));
    for port in ["443", "8443", "8444", "8445"] {
        for last in 0..256 {
            assert!(distinct.contains(&format!("10.9.0.{last}:{port}=a.example")));
        }
    }
    let first: BTreeSet<&str> = all[..8].iter().map(|t| t.split(':').next().unwrap()).collect();
    assert!(first.len() > 4, "ports of one host in a row: {:?}", &all[..8]);
}

#[test]
fn network_beyond_the_address_limit_is_rejected() {
    let refused = shown(&["10.0.0.0/8"], options());
    assert_eq!(
        refused,
        [
            "refused: target: `10.0.0.0/8`: 16777216 addresses, more than the limit of 65536; split the network"
        ]
    );
    assert_eq!(shown(&["10.0.0.0/16"], options()).len(), 65_536);
    let beyond_counting = &shown(&["2001:db8::/64"], options())[0];
    assert!(beyond_counting.contains("18446744073709551616 addresses"), "{beyond_counting}");
    assert!(beyond_counting.ends_with("split the network"), "{beyond_counting}");
    assert!(shown(&["::/0"], options())[0].contains("addresses, more than the limit of 65536"));
}

#[test]
fn huge_network_is_expanded_lazily() {
    let raised = TargetOptions { addresses_max: 1 << 60, ..options() };
    let mut all = targets(&["2001:db8::/68"], raised);
    assert_eq!(all.expected(), Some(1 << 60));
    assert_eq!(all.by_ref().take(3).filter(Result::is_ok).count(), 3);
    assert_eq!(all.expected(), Some((1 << 60) - 3));
}

#[test]
fn target_list_allows_comments_blank_lines_and_any_line_ending() {
    let list = "\u{feff}# the shop\r\na.example\r\n\r\n  b.example:8443   # staging\n\n192.0.2.1=c.example\nhttps://d.example/#top\nlast.example";
    assert_eq!(
        from_input(list),
        ["a.example:443", "b.example:8443", "192.0.2.1:443=c.example", "d.example:443", "last.example:443"]
    );
}

#[test]
fn invalid_line_is_reported_by_number_and_the_rest_is_read() {
    let mut list = b"a.example\nb b\n@more\n-\n\xff\xfe\n".to_vec();
    list.extend(vec![b'x'; LINE_MAX + 1]);
    list.extend(b"\n# fine\n10.0.0.0/8\nz.example\n");
    let read = from_input(list);
    let expected = [
        "a.example:443",
        "refused: standard input:2: `b b`: not a host name: ' ' is not allowed",
        "refused: standard input:3: `@more`: a list of targets cannot contain another",
        "refused: standard input:4: `-`: a list of targets cannot contain another",
        "refused: standard input:5: ``: the line is not UTF-8 text",
        "refused: standard input:6: ``: the line is longer than 16384 bytes",
        "refused: standard input:8: `10.0.0.0/8`: 16777216 addresses",
        "z.example:443",
    ];
    assert_eq!(read.len(), expected.len(), "{read:#?}");
    for (read, expected) in read.iter().zip(expected) {
        assert!(read.starts_with(expected), "{read}");
    }
}

#[test]
fn endless_input_is_read_lazily() {
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let line = format!("h{}.example\n", self.0);
            self.0 += 1;
            buffer[..line.len()].copy_from_slice(line.as_bytes());
            Ok(line.len())
        }
    }
    let input = Box::new(BufReader::new(Endless(0)));
    let targets = Targets::with_input(["-"], options(), input);
    assert_eq!(targets.expected(), None);
    assert_eq!(targets.take(10_000).filter(Result::is_ok).count(), 10_000);
}

#[test]
fn target_file_is_named_in_errors_and_may_contain_paths() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.txt");
    std::fs::write(&file, "a.example\n./certs/a.pem\n*.example\n").unwrap();
    let read = shown(&[&format!("@{}", file.display())], options());
    let working_dir = std::env::current_dir().unwrap().display().to_string();
    assert_eq!(read[..2], ["a.example:443".to_owned(), format!("{working_dir}/certs/a.pem")]);
    assert!(
        read[2].contains("hosts.txt:3: `*.example`: not a host name: a wildcard is not a host"),
        "{}",
        read[2]
    );
    let missing = shown(&["@/nowhere/at/all"], options());
    assert!(missing[0].contains("the list cannot be read: No such file"), "{missing:?}");
}

#[test]
fn existing_path_is_a_file_target_and_stdin_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let target = targets(&[folder.path().to_str().unwrap()], options()).next().unwrap().unwrap();
    assert_eq!(target.host, Host::Path(folder.path().into()));
    assert_eq!((target.protocol, target.port), (Protocol::File, 0));
    // Tests run in the directory of the crate.
    let working_dir = std::env::current_dir().unwrap().display().to_string();
    assert_eq!(shown(&["Cargo.toml"], options()), [format!("{working_dir}/Cargo.toml")]);
    assert!(shown(&["-", "-"], options())[0].contains("standard input can be read only once"));
}

#[test]
fn passwords_and_control_characters_are_removed_from_errors() {
    let refused = shown(&["postgres://joe:secret@bad host/db"], options());
    assert!(!refused[0].contains("secret") && refused[0].contains("bad host"), "{refused:?}");
    let refused = shown(&["a\u{1b}[31m.example"], options());
    assert!(!refused[0].contains('\u{1b}'), "{refused:?}");
}

#[test]
fn target_identity_parses_back_to_the_same_target() {
    let written = [
        "a.example:443",
        "smtp://a.example:2525",
        "[2001:db8::1]:8443",
        "192.0.2.1:443=a.example",
        "xmpp-server://a.example:5269=b.example",
    ];
    for text in written {
        assert_eq!(shown(&[text], options()), [text]);
    }
    let target = targets(&["a.example"], options()).next().unwrap().unwrap();
    assert_eq!(target.identity_at("192.0.2.7".parse().unwrap()), "a.example:443@192.0.2.7");
}
