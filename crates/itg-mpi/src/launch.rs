//! Rank and size as launchers leave them in the environment, known before MPI starts.

/// Variables of rank and size: Open MPI's, those of Hydra (MPICH) and of Slurm.
const VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// Facts that a launcher gives this program in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of this program among those started together, from 0.
    pub rank: u32,
    /// Number of programs started together.
    pub size: u32,
}

impl Launch {
    /// Reads the variables of the environment; `None` when no launcher started this program.
    #[must_use]
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.trim().parse::<u32>().ok();
        VARIABLES.into_iter().find_map(|(rank, size)| {
            let launch = Self { rank: number(rank)?, size: number(size)? };
            (launch.rank < launch.size).then_some(launch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_is_known_by_its_variables() {
        for (variables, want) in [
            (&[][..], None),
            (&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "9")], Some((2, 9))),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "1")], Some((0, 1))),
            (&[("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")], Some((3, 4))),
            (&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], None),
            (&[("OMPI_COMM_WORLD_RANK", "one"), ("OMPI_COMM_WORLD_SIZE", "9")], None),
            (&[("OMPI_COMM_WORLD_RANK", "1")], None),
        ] {
            let find = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let want = want.map(|(rank, size)| Launch { rank, size });
            assert_eq!(Launch::of(find), want, "{variables:?}");
        }
    }
}
