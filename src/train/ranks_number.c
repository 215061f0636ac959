#include "train/ranks_number.h"

#include "base/json.h"
#include "comm/comm.h"
#include "comm/join.h"
#include "device/device.h"
#include "model/lanes.h"
#include "options/table.h"
#include "train/checkpoints.h"

/* The lanes of the run that is resumed; 0: the run is new. A damaged checkpoint gives 1; reading it later reports the damage. */
static int lanes_of_checkpoint(const pt_train_options *o)
{
    char path[FILE_PATH_BYTES] = "", file[FILE_PATH_BYTES];
    json_source src, settings;
    int64_t lanes = 1;
    if (o->resume && o->resume_from)
        snprintf(path, sizeof path, "%s", o->resume_from);
    else if (o->resume && checkpoints_find_newest(o->out, path, NULL))
        return 1;
    if (!path[0])
        return 0;
    if (path_join(file, path, "trainer/trainer.json", NULL) || json_source_open(&src, file, NULL))
        return 1;
    if (!json_get_object(&src, "settings", JSON_REQUIRED, &settings, NULL))
        json_get_int(&settings, "lanes", JSON_OPTIONAL, 1, LANES_MOST, &lanes, NULL);
    json_source_close(&src);
    return (int)lanes;
}

static bool can_share(int lanes, int64_t batch, int ranks)
{
    const int each = lanes ? lanes / ranks : 1;
    return batch % ranks == 0 && (!lanes || (lanes % ranks == 0 && !(each & (each - 1))));
}

int ranks_number(const pt_train_options *o, int *ranks, pt_error *e)
{
    gpu_list g;
    if (*ranks)
        return 0;
    int failed = device_numbers(o->device, &g, e);
    if (!failed && g.n > 1)
        *ranks = g.n;
    if (failed || g.numbered || o->plan_file || o->machine_file)
        return failed;
    failed = device_gpus(o->device, &g, NULL); /* else it is said when the device is opened */
    if (failed || g.n < 2)
        return 0;
    const int known = lanes_of_checkpoint(o), lanes = o->lanes ? o->lanes : known;
    for (int n = g.n < COMM_RANKS_MOST ? g.n : (int)COMM_RANKS_MOST; n > 1 && !*ranks; n--)
        if (can_share(lanes, o->batch_size, n))
            *ranks = n;
    return 0;
}

int pt_ranks_find(pt_train_options *o, int *rank, pt_error *e)
{
    if (!o || !rank)
        return pt_fail_null(e, "pt_ranks_find", o ? "rank" : "the options");
    int failed = options_check_size(&train_table, o, e);
    if (!failed)
        failed = join_find(&o->ranks, rank, e);
    return failed || *rank >= 0 ? failed : ranks_number(o, &o->ranks, e);
}
