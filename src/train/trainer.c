#include "train/trainer.h"

#include "report/memory_file.h"

#include <stdlib.h>
#include <string.h>

schedule_input trainer_schedules(const trainer *t)
{
    const planning *p = &t->planning;
    return (schedule_input){.model = t->job.model, .shape = trainer_shape(t), .packing = &p->result.best.packing,
                            .plan = &p->result.best.plan,
                            .training = true, .host_tier = p->host_tier};
}

int trainer_open_engine(trainer *t, pt_error *e)
{
    const planning *p = &t->planning;
    unsigned kinds = search_kinds(&p->search, trainer_plan(t)->update);
    executor_options x = {.device = p->device, .host = p->host, .input = trainer_schedules(t), .schedules = kinds,
                          .disk_path = p->disk_path, .slots = t->commits.slots, .threads = t->job.o.threads, .comm = t->comm,
                          .device_comm = t->device_comm};
    memcpy(x.budget, p->budget, sizeof x.budget);
    int failed = forecast_make(&x.input, kinds, &p->profile.costs, &t->predicted.now, e);
    return failed ? failed : engine_open(&t->engine, &x, e);
}

int trainer_run(trainer *t, schedule_kind kind, float loss_scale, pt_error *e)
{
    return engine_run(&t->engine, kind, loss_scale, &t->planning.profile.costs, e);
}

int trainer_drain(trainer *t, pt_error *e)
{
    const engine_state s = t->engine.state;
    if (s == ENGINE_CLOSED)
        return pt_fail(e, PT_FAILED, "the run has given its memory back: open it again");
    return s == ENGINE_WAITING || s == ENGINE_TORN ? trainer_run(t, SCHEDULE_DRAIN, 0, e) : 0;
}

bool trainer_evaluates(const trainer *t)
{
    const job *j = &t->job;
    return j->eval && (t->at.step == j->steps || (j->o.eval_every && t->at.step % j->o.eval_every == 0));
}

int trainer_memory(const trainer *t, pt_memory out[TIERS])
{
    const executor *x = t->engine.x;
    int n = x ? 0 : t->memory_n;
    memcpy(out, t->memory, (size_t)n * sizeof *out);
    for (int k = 0; k < TIERS && x; k++)
        out[n++] = (pt_memory){tier_names[k], t->planning.budget[k], executor_bytes(x, k), executor_peak_bytes(x, k)};
    return n;
}

const char *pt_trainer_preview(const pt_trainer *t) { return t ? t->job.preview : NULL; }

char *pt_trainer_plan_json(const pt_trainer *t)
{
    return !t || t->complete ? NULL : plan_to_json(trainer_plan(t), t->job.model, trainer_shape(t));
}

int trainer_write_plan(const trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES], *json = pt_trainer_plan_json(t);
    int failed = json ? path_join(path, t->out.path, "plan.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_atomic(path, json, strlen(json), e);
    free(json);
    return failed ? failed : memory_file_write(t->out.path, t->predicted.now.part, e);
}
