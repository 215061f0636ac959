#include "model/lanes.h"

#include "base/units.h"

#include <stdio.h>

lane_place lane_place_of(int lanes, int lane)
{
    const int plane = __builtin_popcount((unsigned)lane);
    return (lane_place){plane, true, lane == lanes - 1 ? plane : __builtin_ctz((unsigned)lane + 1)};
}

lane_place lane_place_of_unit(const step_shape *shape, int64_t unit)
{
    const int lanes = shape_lanes(shape);
    const int64_t of_lane = shape->units_n / lanes;
    lane_place p = lane_place_of(lanes, (int)(unit / of_lane));
    p.first = unit % of_lane == 0;
    p.merges = unit % of_lane == of_lane - 1 ? p.merges : 0;
    return p;
}

int lane_planes(int lanes)
{
    int most = 0;
    for (int i = 0; i < lanes; i++) {
        const int plane = lane_place_of(lanes, i).plane;
        most = plane > most ? plane : most;
    }
    return most + 1;
}

double lane_tree(int lanes, const double *of_lane)
{
    double plane[33];
    for (int i = 0; i < lanes; i++) {
        const lane_place p = lane_place_of(lanes, i);
        plane[p.plane] = of_lane[i];
        for (int k = 0; k < p.merges; k++)
            plane[p.plane - k - 1] += plane[p.plane - k];
    }
    return plane[0];
}

double lane_sum(int lanes, const float *values, const float *weights, int64_t n)
{
    double of_lane[LANES_MOST];
    const int64_t each = n / lanes;
    for (int i = 0; i < lanes; i++) {
        of_lane[i] = 0;
        for (int64_t k = i * each; k < (i + 1) * each; k++)
            of_lane[i] += weights ? (double)values[k] * (double)weights[k] : (double)values[k];
    }
    return lane_tree(lanes, of_lane);
}

static bool divides(int64_t lanes, int64_t batch, int64_t seq_len)
{
    const int64_t parts = lanes / batch;
    return lanes <= batch ? batch % lanes == 0 : lanes % batch == 0 && (parts & (parts - 1)) == 0 && seq_len % parts == 0;
}

int lanes_check(int lanes, const char *option, int64_t batch, int64_t seq_len, pt_error *e)
{
    int64_t fewer = lanes;
    char smaller[32] = "";
    if (lanes <= 1 || divides(lanes, batch, seq_len))
        return 0;
    while (!divides(fewer, batch, seq_len))
        fewer--;
    if (batch >= lanes)
        snprintf(smaller, sizeof smaller, "%lld or ", (long long)(batch / lanes * lanes));
    return pt_fail(e, PT_USAGE,
                   "`%s` %d divides neither the %lld sequence%s of a step nor each of %lld token%s into 2, 4, 8 ... equal parts: give `%s` "
                   "%lld, or `batch_size` %s%lld",
                   option, lanes, (long long)batch, plural((uint64_t)batch), (long long)seq_len, plural((uint64_t)seq_len), option,
                   (long long)fewer, smaller, (long long)((batch + lanes - 1) / lanes * lanes));
}
