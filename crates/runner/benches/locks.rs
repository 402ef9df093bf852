//! What the locks cost: the same exec with all locks and with none, in turns, in one process.
//!
//! Prints `budget locks_ms <added> 1.5 ok|over|noisy`: the median of the locked runs minus the median of the bare ones,
//! in milliseconds; noisy when the distance between the quartiles of the floor could turn the answer.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() {
    const PAIRS: usize = 200;
    const LIMIT_MS: f64 = 1.5;
    let bench = knack_runner::bench::Locks::new();
    let (mut bare, mut locked) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        bare.push(bench.bare().as_secs_f64() * 1000.0);
        locked.push(bench.locked().as_secs_f64() * 1000.0);
    }
    bare.sort_by(f64::total_cmp);
    locked.sort_by(f64::total_cmp);
    let floor = bare[PAIRS / 2];
    let added = locked[PAIRS / 2] - floor;
    let spread = bare[PAIRS * 3 / 4] - bare[PAIRS / 4];
    let word = if added + spread <= LIMIT_MS {
        "ok"
    } else if added - spread > LIMIT_MS {
        "over"
    } else {
        "noisy"
    };
    let line = format!(
        "locks: floor {floor:.2} ms (quartiles {spread:.2} ms apart), locked {:.2} ms, {PAIRS} pairs\nbudget locks_ms {added:.2} {LIMIT_MS} {word}\n",
        locked[PAIRS / 2],
    );
    std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("stdout is open");
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() {}
