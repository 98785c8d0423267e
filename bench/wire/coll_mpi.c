/* The Open MPI side of `rubato bench collective`: compiled on demand with mpicc.
 *
 *     mpirun -np N coll_mpi DIR BYTES_MAX
 *
 * Rank 0 reads lines "BYTES TIMES" and answers with the seconds of TIMES all-reduces of floats. The
 * others wait for its word in named pipes, not in MPI, so that between rounds nobody spins. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 128, RANKS_MAX = 64 };

static int pipes[RANKS_MAX];

static void open_pipes(const char *dir, int rank, int n)
{
    char path[4096];
    for (int r = 1; r < n && rank == 0; r++) {
        snprintf(path, sizeof path, "%s/mpi.%d", dir, r);
        unlink(path);
        if (mkfifo(path, 0600) != 0) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 1; r < n; r++) {
        if (rank == 0 || rank == r) {
            snprintf(path, sizeof path, "%s/mpi.%d", dir, r);
            pipes[r] = open(path, O_RDWR);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static int next_line(char *line, int rank, int n)
{
    memset(line, 0, LINE_MAX_BYTES);
    if (rank != 0) {
        return read(pipes[rank], line, LINE_MAX_BYTES) == LINE_MAX_BYTES;
    }
    if (fgets(line, LINE_MAX_BYTES, stdin) == NULL) {
        strcpy(line, "quit\n");
    }
    for (int r = 1; r < n; r++) {
        if (write(pipes[r], line, LINE_MAX_BYTES) != LINE_MAX_BYTES) {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    int rank, n;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (argc != 3 || n > RANKS_MAX) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t most = (size_t)strtoll(argv[2], NULL, 10);
    float *data = aligned_alloc(4096, most);
    for (size_t i = 0; i < most / sizeof *data; i++) {
        data[i] = 0;
    }
    open_pipes(argv[1], rank, n);
    if (rank == 0) {
        printf("ready Open MPI %d.%d.%d\n", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
               OMPI_RELEASE_VERSION);
        fflush(stdout);
    }
    char line[LINE_MAX_BYTES];
    while (next_line(line, rank, n) && strncmp(line, "quit", 4) != 0) {
        long long bytes, times;
        if (sscanf(line, "%lld %lld", &bytes, &times) != 2 || (size_t)bytes > most) {
            break;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        for (long long k = 0; k < times; k++) {
            MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        double took = MPI_Wtime() - begin;
        if (rank == 0) {
            printf("%.9f\n", took);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
