//! Searches the memory of another process.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4_096;
/// Bytes per read.
const CHUNK: usize = 256 * PAGE;

/// Returns which of the wanted values are in the memory of the process.
pub(super) fn found(process: u32, wanted: &[(String, Vec<u8>)]) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut search = Search::new(wanted);
    for line in maps.lines().filter(|line| !line.contains("[vvar") && !line.contains("[vsyscall")) {
        let (range, rest) = line.split_once(' ').unwrap();
        if !rest.starts_with('r') {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).unwrap());
        search.region(&memory, from, to);
    }
    assert!(search.read > 1 << 20, "the memory can be read: {} octets", search.read);
    search.found
}

struct Search<'a> {
    wanted: &'a [(String, Vec<u8>)],
    /// Whether a wanted value begins with these two bytes.
    begins: Vec<bool>,
    found: BTreeSet<String>,
    read: usize,
}

impl<'a> Search<'a> {
    fn new(wanted: &'a [(String, Vec<u8>)]) -> Self {
        let mut begins = vec![false; 1 << 16];
        for (_, bytes) in wanted {
            begins[usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))] = true;
        }
        Self { wanted, begins, found: BTreeSet::new(), read: 0 }
    }

    /// Searches runs of non-empty pages: most of the memory that an allocator reserves is empty.
    fn region(&mut self, memory: &File, from: u64, to: u64) {
        let mut run = Vec::new();
        let mut chunk = vec![0; CHUNK];
        let empty = vec![0; CHUNK];
        for at in (from..to).step_by(CHUNK) {
            let length = CHUNK.min((to - at) as usize);
            // Unreadable memory is past the end of a file, and empty.
            let count = memory.read_at(&mut chunk[..length], at).unwrap_or(0);
            if chunk[..count] == empty[..count] {
                self.scan(&std::mem::take(&mut run));
                continue;
            }
            for page in chunk[..count].chunks(PAGE) {
                if page == &empty[..page.len()] {
                    self.scan(&std::mem::take(&mut run));
                } else {
                    run.extend_from_slice(page);
                }
            }
        }
        self.scan(&run);
    }

    fn scan(&mut self, memory: &[u8]) {
        self.read += memory.len();
        for at in 1..memory.len() {
            if self.begins[usize::from(memory[at - 1]) << 8 | usize::from(memory[at])] {
                let matching = self.wanted.iter().filter(|(_, bytes)| memory[at - 1..].starts_with(bytes));
                self.found.extend(matching.map(|(name, _)| name.clone()));
            }
        }
    }
}
