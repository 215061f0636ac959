#include "train/trainer.h"

#include "report/memory_file.h"

#include <stdlib.h>
#include <string.h>

schedule_input trainer_schedules(const trainer *trainer)
{
    const planning *planning = &trainer->planning;
    return (schedule_input){.model = trainer->job.model, .shape = trainer_shape(trainer), .packing = &planning->result.best.packing,
                            .plan = &planning->result.best.plan,
                            .training = true, .host_tier = planning->host_tier};
}

int trainer_open_engine(trainer *trainer, pt_error *e)
{
    const planning *planning = &trainer->planning;
    unsigned kinds = search_kinds(&planning->search, trainer_plan(trainer)->update);
    executor_options x = {.device = planning->device,
                          .host = planning->host,
                          .input = trainer_schedules(trainer),
                          .schedules = kinds,
                          .disk_path = planning->disk_path,
                          .slots = trainer->commits.slots,
                          .threads = trainer->job.o.threads,
                          .comm = trainer->comm,
                          .device_comm = trainer->device_comm};
    memcpy(x.budget, planning->budget, sizeof x.budget);
    int failed = forecast_make(&x.input, kinds, &planning->profile.costs, &trainer->predicted.now, e);
    return failed ? failed : engine_open(&trainer->engine, &x, e);
}

int trainer_run(trainer *trainer, schedule_kind kind, float loss_scale, pt_error *e)
{
    return engine_run(&trainer->engine, kind, loss_scale, &trainer->planning.profile.costs, e);
}

int trainer_drain(trainer *trainer, pt_error *e)
{
    const engine_state s = trainer->engine.state;
    if (s == ENGINE_CLOSED)
        return pt_fail(e, PT_FAILED, "the run has given its memory back: open it again");
    return s == ENGINE_WAITING || s == ENGINE_TORN ? trainer_run(trainer, SCHEDULE_DRAIN, 0, e) : 0;
}

bool trainer_evaluates(const trainer *trainer)
{
    const job *j = &trainer->job;
    return j->eval && (trainer->at.step == j->steps || (j->o.eval_every && trainer->at.step % j->o.eval_every == 0));
}

int trainer_memory(const trainer *trainer, pt_memory out[TIERS])
{
    const executor *exec = trainer->engine.x;
    int n = exec ? 0 : trainer->memory_n;
    memcpy(out, trainer->memory, (size_t)n * sizeof *out);
    for (int k = 0; k < TIERS && exec; k++)
        out[n++] = (pt_memory){tier_names[k], trainer->planning.budget[k], executor_bytes(exec, k), executor_peak_bytes(exec, k)};
    return n;
}

const char *pt_trainer_preview(const pt_trainer *t) { return t ? t->job.preview : NULL; }

char *pt_trainer_plan_json(const pt_trainer *t)
{
    return !t || t->complete ? NULL : plan_to_json(trainer_plan(t), t->job.model, trainer_shape(t));
}

int trainer_write_plan(const trainer *trainer, pt_error *e)
{
    char path[FILE_PATH_BYTES], *json = pt_trainer_plan_json(trainer);
    int failed = json ? path_join(path, trainer->out.path, "plan.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_atomic(path, json, strlen(json), e);
    free(json);
    return failed ? failed : memory_file_write(trainer->out.path, trainer->predicted.now.part, e);
}
