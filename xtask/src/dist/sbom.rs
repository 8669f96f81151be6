//! The software bill of materials, CycloneDX 1.5 in JSON: the crates in the binary, from `cargo tree` and `Cargo.lock`.
//!
//! cargo-cyclonedx is not used: it takes minutes to compile, and lists the dependencies of all platforms. `cargo tree` lists the
//! dependencies of this binary.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::shell::{Failure, cargo, command, output_of, root};

use super::release::{self, Release};

/// A crate by name and version.
type CrateId = (String, String);

#[derive(Default)]
struct LockedCrate {
    /// SHA-256 of the archive in the registry; `None` for crates of this repository.
    checksum: Option<String>,
    dependencies: Vec<CrateId>,
}

/// Writes the bill of materials and returns its path.
///
/// # Errors
/// Cargo fails, or `Cargo.lock` cannot be read.
pub(super) fn write(release: &Release, features: &str) -> Result<PathBuf, Failure> {
    let arguments = [
        "tree",
        "--locked",
        "-p",
        "bulla",
        "-e",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}|{l}",
    ];
    let tree = output_of(cargo(&arguments).args(["--features", features]))
        .ok_or_else(|| Failure::Program("cargo tree failed".to_owned()))?;
    let licences = licences(&tree);
    let locked = locked(&release::read(&root().join("Cargo.lock"))?);
    let time =
        output_of(command("date").args(["--utc", "+%FT%TZ", "--date"]).arg(format!("@{}", release.epoch)))
            .ok_or_else(|| Failure::Program("date failed".to_owned()))?;
    let path = release.output.join(format!("bulla_{}.cdx.json", release.version));
    release::write(&path, &document(release, time.trim(), &licences, &locked), 0o644)?;
    Ok(path)
}

/// Returns crates and their licences, from lines `NAME vVERSION …|LICENCE`.
fn licences(tree: &str) -> BTreeMap<CrateId, String> {
    let parse = |line: &str| {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
        let mut words = package.split_whitespace();
        let name = words.next()?.to_owned();
        let version = words.next()?.strip_prefix('v')?.to_owned();
        Some(((name, version), licence.trim().replace('/', " OR ")))
    };
    tree.lines().filter_map(parse).collect()
}

/// Returns the packages of a `Cargo.lock`.
fn locked(text: &str) -> BTreeMap<CrateId, LockedCrate> {
    let blocks: Vec<&str> = text.split("[[package]]").skip(1).collect();
    let field = |block: &str, name: &str| {
        let prefix = format!("{name} = \"");
        block.lines().find_map(|line| line.strip_prefix(&prefix)?.strip_suffix('"').map(str::to_owned))
    };
    let id = |block: &str| Some((field(block, "name")?, field(block, "version")?));
    let ids: Vec<CrateId> = blocks.iter().filter_map(|block| id(block)).collect();
    let find = |entry: &str| {
        let mut words = entry.split(' ');
        let name = words.next()?;
        let version = words.next();
        ids.iter().find(|id| id.0 == name && version.is_none_or(|version| id.1 == version)).cloned()
    };
    let read = |block: &&str| {
        let entries = block.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        let dependencies = entries.filter_map(find).collect();
        Some((id(block)?, LockedCrate { checksum: field(block, "checksum"), dependencies }))
    };
    blocks.iter().filter_map(read).collect()
}

fn document(
    release: &Release,
    time: &str,
    licences: &BTreeMap<CrateId, String>,
    locked: &BTreeMap<CrateId, LockedCrate>,
) -> String {
    let components: Vec<String> = licences
        .iter()
        .map(|(id, licence)| {
            component(id, licence, locked.get(id).and_then(|package| package.checksum.as_deref()))
        })
        .collect();
    let dependencies: Vec<String> = licences
        .keys()
        .map(|id| {
            let on = locked.get(id).map_or(&[][..], |package| &package.dependencies);
            let on: Vec<String> = on
                .iter()
                .filter(|other| licences.contains_key(*other))
                .map(|other| quote(&reference(other)))
                .collect();
            format!("    {{\"ref\": {}, \"dependsOn\": [{}]}}", quote(&reference(id)), on.join(", "))
        })
        .collect();
    format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \"metadata\": {{\n    \
         \"timestamp\": {},\n    \"component\": {{\"type\": \"application\", \"bom-ref\": \"release\", \"name\": \"bulla\", \
         \"version\": {}}}\n  }},\n  \"components\": [\n{}\n  ],\n  \"dependencies\": [\n{}\n  ]\n}}\n",
        quote(time),
        quote(&release.version),
        components.join(",\n"),
        dependencies.join(",\n"),
    )
}

fn component(id: &CrateId, licence: &str, checksum: Option<&str>) -> String {
    let mut members = vec![
        "\"type\": \"library\"".to_owned(),
        format!("\"bom-ref\": {}", quote(&reference(id))),
        format!("\"name\": {}", quote(&id.0)),
        format!("\"version\": {}", quote(&id.1)),
    ];
    if !licence.is_empty() {
        members.push(format!("\"licenses\": [{{\"expression\": {}}}]", quote(licence)));
    }
    if let Some(checksum) = checksum {
        members.push(format!("\"hashes\": [{{\"alg\": \"SHA-256\", \"content\": {}}}]", quote(checksum)));
        members.push(format!("\"purl\": {}", quote(&reference(id))));
    }
    format!("    {{{}}}", members.join(", "))
}

/// Returns the package URL, in which the `+` of build metadata must be escaped.
fn reference(id: &CrateId) -> String {
    format!("pkg:cargo/{}@{}", id.0, id.1.replace('+', "%2B"))
}

/// Formats a JSON string.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            character if character < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"twice 2.0.0\",\n \
                        \"once\",\n]\n\n[[package]]\nname = \"once\"\nversion = \"1.0.0+5\"\nchecksum = \"ab\"\n\n\
                        [[package]]\nname = \"twice\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"twice\"\nversion = \
                        \"2.0.0\"\nchecksum = \"cd\"\n";

    fn id(name: &str, version: &str) -> CrateId {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn lock_file_yields_checksums_and_resolved_dependency_versions() {
        let locked = locked(LOCK);
        assert_eq!(locked.len(), 4);
        assert_eq!(locked[&id("own", "0.1.0")].dependencies, [id("twice", "2.0.0"), id("once", "1.0.0+5")]);
        assert_eq!(locked[&id("twice", "2.0.0")].checksum.as_deref(), Some("cd"));
        assert!(locked[&id("own", "0.1.0")].checksum.is_none());
    }

    #[test]
    fn cargo_tree_output_yields_each_crate_once_with_its_license() {
        let found = licences(
            "own v0.1.0 (/source/own)|Apache-2.0\nonce v1.0.0|MIT/Apache-2.0\nonce v1.0.0|MIT/Apache-2.0 (*)\n",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[&id("once", "1.0.0")], "MIT OR Apache-2.0");
    }

    #[test]
    fn registry_component_has_a_package_url_and_a_hash() {
        let text = component(&id("once", "1.0.0+5"), "MIT", Some("ab"));
        assert!(text.contains("\"purl\": \"pkg:cargo/once@1.0.0%2B5\""), "{text}");
        assert!(text.contains("\"content\": \"ab\""), "{text}");
        assert!(!component(&id("own", "0.1.0"), "MIT", None).contains("purl"));
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quote("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
