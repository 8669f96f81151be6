//! Disassembles the kernels of batched signatures, and fails on instructions that could depend on a secret.
//!
//! - Forbidden everywhere: loads or stores with an address in a vector register (gather, scatter), masked loads or stores whose
//!   mask is not constant, and divisions.
//! - Conditional jumps: allowed only in the functions of [`ALLOWED`], up to the number given there, with the values that they
//!   depend on. The arithmetic itself (products, squares, sums of points, table lookups) has none.
//!
//! The check does not prove more: allowed jumps are counted, not traced. They were reviewed by a person for one compiler. If
//! another compiler produces other jumps, the step fails, and they must be reviewed again.

use std::collections::BTreeMap;

use crate::shell::{Failure, cargo, command, output_of, run as run_command};

/// Functions with conditional jumps: their maximum number, and the values that they depend on.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("batch::avx512::Scratch::of", 5, "the number of limbs"),
    ("batch::avx512::Scratch::zero", 2, "whether there is memory"),
    ("<batch::avx512::Scratch as zeroize::Zeroize>::zeroize", 2, "the number of table entries"),
    ("batch::avx512::operate", 42, "the numbers of limbs, bytes and lanes; whether a lane is sound"),
    ("batch::avx512::power::power", 4, "the numbers of table entries, windows and words"),
    ("batch::avx512::lanes::gather", 8, "the number of limbs"),
    ("batch::avx512::wide::carry", 5, "the number of limbs"),
    ("batch::avx512::wide::reduce", 2, "the number of limbs"),
    ("batch::avx512::wide::multiply_add", 1, "the number of limbs"),
    ("batch::avx512::wide::multiply_wide", 2, "the number of limbs"),
    ("batch::avx512::p256::numbers", 1, "the number of bytes"),
    ("batch::avx512::p256::sign", 19, "the lengths of inputs; places of digits; whether a lane is sound"),
    ("batch::avx512::p256::sign_by", 9, "the numbers of bytes and lanes; whether a lane is sound"),
    ("batch::avx512::p256::signatures", 1, "whether there are tables"),
    ("batch::avx512::p256::inverse::inverses", 5, "the exponents p - 2 and n - 2"),
    ("batch::avx512::p256::field::inverse", 9, "the exponent p - 2"),
    ("batch::avx512::ed25519::commit", 18, "places of digits; whether a lane is sound"),
    ("batch::avx512::ed25519::commit_by", 2, "the number of lanes"),
    ("batch::avx512::ed25519::commitments", 1, "whether there are tables"),
    ("batch::avx512::ed25519::respond", 31, "the numbers of bytes and lanes; whether a lane is sound"),
    ("batch::avx512::ed25519::responses", 1, "whether there are tables"),
    ("batch::avx512::ed25519::encoded", 4, "the number of bytes"),
    ("batch::avx512::ed25519::is_encoded", 1, "the number of bytes"),
    ("batch::avx512::ed25519::wide", 1, "the number of bytes"),
    ("batch::avx512::ed25519::field::inverse", 8, "the exponent p - 2"),
    ("batch::number::doubled", 7, "how often, and the number of words"),
    ("batch::number::bytes", 4, "the number of bytes"),
    ("batch::number::words", 16, "the number of bytes; whether those past the number are zero"),
    ("batch::number::words_from_lowest", 2, "the number of bytes"),
    (
        "batch::key::Key::fill",
        16,
        "the lengths of numbers; whether they are odd and full; the public exponent",
    ),
    ("batch::key::Side::fill", 9, "the lengths of numbers; whether they are odd and full"),
    ("batch::p256::P256Key::fill", 12, "the length of the number; whether it is in range"),
    ("batch::ed25519::Ed25519Key::fill", 1, "the number of bytes"),
];

/// Functions without secrets: tables, input of jobs and output of results, memory.
const PUBLIC: &[&str] = &[
    "batch::avx512::comb::Checksum::",
    "batch::avx512::comb::Window<",
    "batch::avx512::comb::vectors",
    "batch::avx512::ed25519::curve::Curve::",
    "batch::avx512::ed25519::curve::windows",
    "batch::avx512::p256::curve::Curve::",
    "batch::avx512::p256::curve::windows",
    "batch::kernel::Kernel::detect",
    "batch::<impl batch::kernel::Kernel>::",
    "batch::ed25519::Ed25519Key::new",
    "batch::ed25519::Ed25519Key::unsound",
    "batch::key::Key::new",
    "batch::p256::P256Key::new",
    "batch::p256::P256Key::unsound",
    "core::ptr::drop_in_place<",
];

/// A disassembled function. Closures count as parts of their functions.
#[derive(Default)]
struct DisassembledFunction {
    jumps: usize,
    forbidden: Vec<String>,
}

/// Builds the crate as in a release, and checks it.
///
/// # Errors
/// The build failed, `objdump` is missing, or a function has a forbidden instruction.
pub(crate) fn run() -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        println!("NOT CHECKED: the kernels are compiled for x86-64 alone.");
        return Ok(());
    }
    run_command(&mut cargo(&["build", "--release", "-p", "batch"]))?;
    let folder = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let library = format!("{folder}/release/libbatch.rlib");
    let disassembled = output_of(command("objdump").args(["-d", "-C", "--no-show-raw-insn", &library]));
    let text = disassembled.ok_or_else(|| {
        Failure::Program(format!("objdump cannot read {library}: apt-get install -y binutils"))
    })?;
    let found = judged(&functions(&text));
    if found.is_empty() {
        return Ok(());
    }
    Err(Failure::Program(format!("the kernels may depend on secrets:\n{}", found.join("\n"))))
}

/// Returns the functions in the disassembly of the crate.
fn functions(text: &str) -> BTreeMap<String, DisassembledFunction> {
    let mut functions: BTreeMap<String, DisassembledFunction> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| Some(line.split_once(" <")?.1)) {
            let name = name.replace("::{{closure}}", "");
            current = name.contains("batch::").then_some(name);
        } else if let Some(name) = &current
            && let Some((_, instruction)) = line.split_once(":\t")
        {
            let function = functions.entry(name.clone()).or_default();
            let (operation, operands) =
                instruction.split_once(char::is_whitespace).unwrap_or((instruction, ""));
            function.jumps += usize::from(operation.starts_with('j') && operation != "jmp");
            if is_forbidden(operation, operands) {
                function.forbidden.push(instruction.trim().to_owned());
            }
        }
    }
    functions
}

/// Returns whether the behaviour or duration of an instruction may depend on register values.
fn is_forbidden(operation: &str, operands: &str) -> bool {
    let is_masked = operands.contains("{%k") && operands.contains('(') && !operands.contains("(%rip)");
    let is_indexed = operation.contains("gather") || operation.contains("scatter");
    is_masked || is_indexed || operation.starts_with("div") || operation.starts_with("idiv")
}

/// Returns the violations in the functions.
fn judged(functions: &BTreeMap<String, DisassembledFunction>) -> Vec<String> {
    let mut found = Vec::new();
    if !functions.contains_key("batch::avx512::montgomery::multiply") {
        found.push("no kernels were disassembled".to_owned());
    }
    for (name, function) in functions {
        if PUBLIC.iter().any(|public| name.starts_with(public)) {
            continue;
        }
        found.extend(function.forbidden.iter().map(|instruction| format!("{name}: {instruction}")));
        let allowed = ALLOWED.iter().find(|(known, ..)| known == name).map_or(0, |(_, jumps, _)| *jumps);
        if function.jumps > allowed {
            found.push(format!("{name}: {} conditional jumps, {allowed} are allowed", function.jumps));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "\
0000000000000000 <batch::avx512::montgomery::multiply>:
       0:\tvpmadd52luq 0x40(%rsp),%zmm1,%zmm2
       8:\tret

0000000000000000 <batch::avx512::wide::reduce>:
       0:\tcmp    $0xa40,%rax
       6:\tjne    0 <batch::avx512::wide::reduce>
       8:\tjmp    0 <batch::avx512::wide::reduce>

0000000000000000 <batch::avx512::power::power>:
       0:\tvpandq 0x0(%rip){1to8},%zmm0,%zmm9{%k1}{z}        # 8b6 <batch::avx512::power::power+0x8b6>

0000000000000000 <core::slice::sort>:
       0:\tdiv    %rcx
       2:\tjne    0 <core::slice::sort>
";

    fn found(more: &str) -> Vec<String> {
        judged(&functions(&format!("{SOUND}{more}")))
    }

    #[test]
    fn public_branches_and_lookups_pass() {
        assert_eq!(found(""), [""; 0]);
        let table = "0000 <batch::avx512::p256::curve::Curve::made>:\n  0:\tjne    0 <x>\n";
        assert_eq!(found(table), [""; 0]);
    }

    #[test]
    fn secret_dependent_instructions_are_detected() {
        for (instruction, is_found) in [
            ("jb     150 <batch::number::doubled+0x150>", true),
            ("jmp    150 <batch::number::doubled+0x150>", false),
            ("vpgatherqq (%rax,%zmm1,8),%zmm2{%k1}", true),
            ("vmovdqa64 (%rax),%zmm1{%k1}{z}", true),
            ("vpcmpeqq 0x940(%rsp),%zmm4,%k1{%k1}", true),
            ("vpcmpeqq %zmm20,%zmm1,%k1{%k1}", false),
            ("divq   0x8(%rsp)", true),
            ("cmovb  %rax,%rcx", false),
        ] {
            let text = format!(
                "0000 <batch::avx512::p256::point::Point::add::{{{{closure}}}}>:\n  0:\t{instruction}\n"
            );
            assert_eq!(found(&text).len(), usize::from(is_found), "{instruction}");
        }
        // One jump more than was reviewed.
        let more = "0000 <batch::avx512::wide::reduce>:\n  0:\tjb     0 <x>\n  2:\tje     0 <x>\n";
        assert_eq!(found(more).len(), 1);
        assert_eq!(judged(&functions("")), ["no kernels were disassembled"]);
    }
}
