//! Divisors of a number of any size, from its prime factors: those below a thousand by division, larger ones by Pollard's rho (1975)
//! between tests of Miller and Rabin, which are exact below 2^64 for the first twelve primes as bases (Sorenson and Webster, 2015).

/// Divisors of `n`, ascending; none of zero. A 64-bit number has at most 103,680.
pub fn divisors(n: u64) -> Vec<u64> {
    if n == 0 {
        return Vec::new();
    }
    let mut out = vec![1];
    for (prime, power) in factors(n) {
        let before = out.len();
        let mut factor = 1;
        for _ in 0..power {
            factor *= prime;
            out.extend_from_within(..before);
            let at = out.len() - before;
            out[at..].iter_mut().for_each(|d| *d *= factor);
        }
    }
    out.sort_unstable();
    out
}

/// Numbers below this are divided out first.
const SMALL: u64 = 1000;

/// Prime factors with their powers, ascending.
fn factors(mut n: u64) -> Vec<(u64, u32)> {
    let mut primes = Vec::new();
    let mut d = 2;
    while d < SMALL && d <= n / d {
        while n.is_multiple_of(d) {
            primes.push(d);
            n /= d;
        }
        d += 1;
    }
    let mut left = vec![n];
    while let Some(n) = left.pop().filter(|n| *n > 1) {
        match divisor(n) {
            None => primes.push(n),
            Some(d) => left.extend([d, n / d]),
        }
    }
    primes.sort_unstable();
    let mut out: Vec<(u64, u32)> = Vec::new();
    for prime in primes {
        match out.last_mut().filter(|(last, _)| *last == prime) {
            Some((_, power)) => *power += 1,
            None => out.push((prime, 1)),
        }
    }
    out
}

fn times(a: u64, b: u64, n: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(n)) as u64
}

/// A divisor of a number without small ones, neither one nor itself; `None` of a prime.
fn divisor(n: u64) -> Option<u64> {
    if n < SMALL * SMALL || is_prime(n) {
        return None;
    }
    // Cycles of x^2 + c: some c leads to a divisor, of a square of a prime too.
    (1..n).find_map(|c| {
        let next = |x: u64| (u128::from(times(x, x, n)) + u128::from(c)).rem_euclid(u128::from(n)) as u64;
        let (mut slow, mut fast) = (2, 2);
        loop {
            (slow, fast) = (next(slow), next(next(fast)));
            match gcd(slow.abs_diff(fast), n) {
                1 => {}
                d if d == n => return None,
                d => return Some(d),
            }
        }
    })
}

/// Greatest common divisor.
pub fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether an odd number above forty is prime.
fn is_prime(n: u64) -> bool {
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    [2u64, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37].iter().all(|base| {
        let (mut x, mut square, mut power) = (1, base % n, odd);
        while power > 0 {
            if power & 1 == 1 {
                x = times(x, square, n);
            }
            square = times(square, square, n);
            power >>= 1;
        }
        let one = x == 1;
        let mut ends_below = || {
            let below = x == n - 1;
            x = times(x, x, n);
            below
        };
        one || (0..twos).any(|_| ends_below())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_by_hand() {
        assert_eq!(divisors(0), Vec::<u64>::new());
        assert_eq!(divisors(1), vec![1]);
        assert_eq!(divisors(12), vec![1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(1_000_003), vec![1, 1_000_003]);
    }

    #[test]
    fn divisors_by_division() {
        for n in (1..3000).chain(1_000_000..1_000_200).chain([997 * 997, 1009 * 1009, 1009 * 1013 * 1019]) {
            let slow: Vec<u64> = (1..=n.min(3_000_000)).filter(|d| n % d == 0).collect();
            assert_eq!(divisors(n).into_iter().filter(|d| *d <= 3_000_000).collect::<Vec<_>>(), slow, "{n}");
        }
    }

    /// The number of divisors is the product of the powers plus one, and 2^64 is no limit: these end at once.
    #[test]
    fn divisors_of_large_numbers() {
        // 963,761,198,400 has 6,720 divisors, more than any smaller number.
        assert_eq!(divisors(963_761_198_400).len(), 6720);
        assert_eq!(divisors(735_134_400).len(), 1344);
        // Primes next to 2^61 and 2^64, a product of two primes near 2^32, a square and a cube of a prime.
        assert_eq!(divisors((1 << 61) - 1), vec![1, (1 << 61) - 1]);
        assert_eq!(divisors(18_446_744_073_709_551_557), vec![1, 18_446_744_073_709_551_557]);
        assert_eq!(
            divisors(4_294_967_291 * 4_294_967_279),
            vec![1, 4_294_967_279, 4_294_967_291, 4_294_967_291 * 4_294_967_279]
        );
        assert_eq!(divisors(4_294_967_291 * 4_294_967_291).len(), 3);
        assert_eq!(
            divisors(2_642_239 * 2_642_239 * 2_642_239),
            vec![1, 2_642_239, 2_642_239 * 2_642_239, 2_642_239 * 2_642_239 * 2_642_239]
        );
        assert_eq!(divisors(u64::MAX).len(), 128);
        let all = divisors(897_612_484_786_617_600);
        assert_eq!(all.len(), 103_680);
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.iter().all(|d| 897_612_484_786_617_600 % d == 0));
    }
}
