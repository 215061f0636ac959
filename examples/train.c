/* train.c - trains a model through the library.
 *
 *     cc train.c $(pkg-config --cflags --libs protrain) -o train
 *     ./train MODEL_FOLDER DATA OUT_FOLDER STEPS
 */
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>

static void notice(void *arg, const char *sentence) { fprintf(stderr, "note: %s\n", sentence); }

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: train MODEL_FOLDER DATA OUT_FOLDER STEPS\n");
        return 2;
    }
    pt_train_options o;
    pt_train_defaults(&o);
    o.model = argv[1];
    o.data = (const char *const[]){argv[2]};
    o.data_n = 1;
    o.out = argv[3];
    o.steps = atoll(argv[4]);
    o.notice = notice;

    pt_error e = {0};
    pt_trainer *t = NULL;
    pt_step s;
    int more = pt_trainer_open(&o, &t, &e); /* planned, proved to fit, memory taken, weights loaded */
    while (more >= 0 && (more = pt_trainer_step(t, &s, &e)) > 0)
        printf("step %lld  loss %.4f  gradient norm %.4f\n", (long long)s.step, s.loss, s.grad_norm);
    if (more == 0)
        more = pt_trainer_finish(t, &e); /* the trained model is in the output folder */
    if (more < 0)
        fprintf(stderr, "train: %s\n", e.text);
    pt_trainer_close(t);
    return more < 0;
}
