/* splits.h - the split that the name of a data file tells, by the first of its words that names one:
 *
 *   train        train, training
 *   validation   validation, valid, val, evaluation, eval, dev
 *   test         test, testing
 *
 * A folder has splits if a file of it is named for training and another for validation or test. */
#ifndef PT_DATA_SPLITS_H
#define PT_DATA_SPLITS_H

typedef enum data_split { SPLIT_NONE, SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST, SPLITS } data_split;

data_split data_split_of(const char *name); /* words are runs of letters, small or capital: valid-00000-of-00002.jsonl, Test.csv */

#endif
