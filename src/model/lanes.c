#include "model/lanes.h"

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

int lanes_check(int lanes, int64_t batch, pt_error *e)
{
    int64_t less = lanes < batch ? lanes : batch;
    if (lanes <= 1 || batch % lanes == 0)
        return 0;
    while (batch % less)
        less--;
    return pt_fail(e, PT_USAGE, "`lanes` %d does not divide `batch_size` %lld: give `lanes` %lld or `batch_size` %lld", lanes,
                   (long long)batch, (long long)less, (long long)((batch + lanes - 1) / lanes * lanes));
}
