//! The container image: an OCI image layout in a tar file, with one layer, built without a daemon.
//!
//! The layer contains the program, its shared libraries, the certificates of public CAs, and the files with which the C library
//! looks up users and names. There is no shell and no package manager.

use std::path::{Path, PathBuf};

use crate::shell::{Failure, command, output_of, run as run_command};

use super::options::Compression;
use super::release::{self, Release, copy, recreate_folder, set_folder_modes, sha256};
use super::sbom::quote;

/// User id in the container. It is not root, and not a user of a distribution.
const USER: &str = "65532";
/// The data folder, owned by [`USER`].
const DATA: &str = "var/lib/bulla";
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// A blob of the layout.
struct Blob {
    digest: String,
    size: u64,
}

/// Writes the image and returns its path.
///
/// # Errors
/// `tar`, `gzip` or `ldd` failed, or this machine has no certificates of public CAs.
pub(super) fn write(release: &Release) -> Result<PathBuf, Failure> {
    let files = release.work.join("image");
    recreate_folder(&files)?;
    fill(release, &files)?;
    let layout = release.work.join("layout");
    recreate_folder(&layout)?;
    let plain = release.work.join("layer.tar");
    pack(release, &files, &plain)?;
    let diff_id = sha256(&plain)?;
    let level = if release.compression == Compression::Small { "-9" } else { "-1" };
    run_command(command("gzip").args(["--no-name", level]).arg(&plain))?;
    let layer = add(&layout, &release.work.join("layer.tar.gz"))?;
    let configuration = add_text(release, &layout, &configuration(release, &diff_id))?;
    let manifest = add_text(release, &layout, &manifest(&configuration, &layer))?;
    release::write(&layout.join("oci-layout"), "{\"imageLayoutVersion\": \"1.0.0\"}\n", 0o644)?;
    release::write(&layout.join("index.json"), &index(release, &manifest), 0o644)?;
    let name = format!("bulla_{}_{}.oci.tar", release.version, release.debian_architecture());
    let image = release.output.join(name);
    set_folder_modes(&layout)?;
    tar(release, "--create", &layout, &image, "0", &["index.json", "oci-layout", "blobs"])?;
    println!("{}: sha256:{}", image.display(), manifest.digest);
    Ok(image)
}

fn fill(release: &Release, files: &Path) -> Result<(), Failure> {
    let program = files.join("usr/bin/bulla");
    copy(&release.tree.join("usr/bin/bulla"), &program, 0o755)?;
    for library in libraries(&program) {
        copy(&library, &files.join(library.strip_prefix("/").unwrap_or(&library)), 0o755)?;
    }
    copy(&Path::new("/").join(CERTIFICATES), &files.join(CERTIFICATES), 0o644)?;
    for (path, text) in [
        ("etc/passwd", format!("root:x:0:0:root:/:/none\nbulla:x:{USER}:{USER}:Bulla:/{DATA}:/none\n")),
        ("etc/group", format!("root:x:0:\nbulla:x:{USER}:\n")),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
        ("etc/bulla/.keep", String::new()),
    ] {
        release::write(&files.join(path), &text, 0o644)?;
    }
    for licence in ["usr/share/doc/libc6/copyright", "usr/share/doc/libgcc-s1/copyright"] {
        let of_this_machine = Path::new("/").join(licence);
        if of_this_machine.exists() {
            copy(&of_this_machine, &files.join(licence), 0o644)?;
        }
    }
    copy(
        &release.tree.join("usr/share/doc/bulla/LICENSE"),
        &files.join("usr/share/doc/bulla/LICENSE"),
        0o644,
    )?;
    recreate_folder(&files.join("tmp"))?;
    recreate_folder(&files.join(DATA))?;
    set_folder_modes(files)?;
    release::set_mode(&files.join("tmp"), 0o1777)?;
    release::set_mode(&files.join(DATA), 0o700)
}

/// Returns the shared libraries of a program, with the loader; empty for a static program.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let text = output_of(command("ldd").arg(program)).unwrap_or_default();
    // Lines such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from))
        .collect()
}

/// Packs the layer. All files belong to root, except the data folder.
fn pack(release: &Release, files: &Path, target: &Path) -> Result<(), Failure> {
    let mut paths = release::files(files)?;
    paths.push("tmp".to_owned());
    paths.sort();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    tar(release, "--create", files, target, "0", &paths)?;
    tar(release, "--append", files, target, USER, &[DATA])
}

fn tar(
    release: &Release,
    action: &str,
    folder: &Path,
    target: &Path,
    owner: &str,
    paths: &[&str],
) -> Result<(), Failure> {
    let mut tar = command("tar");
    tar.args([action, "--format=ustar", "--sort=name", "--numeric-owner"]);
    tar.arg(format!("--owner={owner}"))
        .arg(format!("--group={owner}"))
        .arg(format!("--mtime=@{}", release.epoch));
    run_command(tar.arg("--file").arg(target).arg("--directory").arg(folder).args(paths))
}

fn add(layout: &Path, file: &Path) -> Result<Blob, Failure> {
    let digest = sha256(file)?;
    let size = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    copy(file, &layout.join("blobs/sha256").join(&digest), 0o644)?;
    Ok(Blob { digest, size })
}

fn add_text(release: &Release, layout: &Path, text: &str) -> Result<Blob, Failure> {
    let file = release.work.join("blob.json");
    release::write(&file, text, 0o644)?;
    add(layout, &file)
}

fn configuration(release: &Release, diff_id: &str) -> String {
    let command = [
        "serve",
        "--listen",
        "0.0.0.0:8443",
        "--public-listen",
        "0.0.0.0:8080",
        "--credential-listen",
        "0.0.0.0:8844",
    ];
    let command: Vec<String> = command.iter().map(|word| quote(word)).collect();
    format!(
        "{{\"architecture\": {}, \"os\": \"linux\", \"config\": {{\"User\": \"{USER}:{USER}\", \"WorkingDir\": \"/{DATA}\", \
         \"Env\": [\"PATH=/usr/bin\", \"BULLA_DATA=/{DATA}\", \"SSL_CERT_FILE=/{CERTIFICATES}\"], \
         \"Entrypoint\": [\"/usr/bin/bulla\"], \"Cmd\": [{}], \"Volumes\": {{\"/{DATA}\": {{}}}}, \
         \"ExposedPorts\": {{\"8443/tcp\": {{}}, \"8080/tcp\": {{}}, \"8844/tcp\": {{}}}}, \
         \"Labels\": {{\"org.opencontainers.image.title\": \"bulla\", \"org.opencontainers.image.version\": {}, \
         \"org.opencontainers.image.licenses\": \"Apache-2.0\"}}}}, \
         \"rootfs\": {{\"type\": \"layers\", \"diff_ids\": [\"sha256:{diff_id}\"]}}}}",
        quote(release.debian_architecture()),
        command.join(", "),
        quote(&release.version),
    )
}

fn manifest(configuration: &Blob, layer: &Blob) -> String {
    format!(
        "{{\"schemaVersion\": 2, \"mediaType\": \"application/vnd.oci.image.manifest.v1+json\", \"config\": {}, \"layers\": [{}]}}",
        descriptor("application/vnd.oci.image.config.v1+json", configuration, ""),
        descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer, ""),
    )
}

fn index(release: &Release, manifest: &Blob) -> String {
    let name =
        format!(", \"annotations\": {{\"org.opencontainers.image.ref.name\": {}}}", quote(&release.version));
    format!(
        "{{\"schemaVersion\": 2, \"mediaType\": \"application/vnd.oci.image.index.v1+json\", \"manifests\": [{}]}}\n",
        descriptor("application/vnd.oci.image.manifest.v1+json", manifest, &name),
    )
}

fn descriptor(media_type: &str, blob: &Blob, more: &str) -> String {
    format!(
        "{{\"mediaType\": {}, \"digest\": \"sha256:{}\", \"size\": {}{more}}}",
        quote(media_type),
        blob.digest,
        blob.size
    )
}
