/* stories.c - endless small stories to train on, the same for the same seed.
 *
 *     stories COUNT [SEED] > stories.jsonl        one {"text": "..."} a line
 *
 * A story is seven sentences or so: one template of each stage, in order. Whatever a template names in
 * braces is drawn once a story, so that a model has to carry a name, a pronoun and a lost thing from
 * one sentence to the next.
 */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char *const girls[] = {"Anna", "Lily", "Mia", "Rosa", "Nora", "Ella", "Ida", "Maya"};
static const char *const boys[] = {"Tom", "Ben", "Max", "Finn", "Oscar", "Leo", "Paul", "Sam"};
static const char *const friends[] = {"fox", "owl", "rabbit", "bear", "frog", "hen", "mouse", "duck", "cat", "goat"};
static const char *const places[] = {"forest", "garden", "village", "meadow", "harbour", "old mill", "hill", "market"};
static const char *const things[] = {"red ball", "blue kite", "small boat", "silver key", "drum", "lantern", "book", "hat"};
static const char *const foods[] = {"bread", "apples", "soup", "honey", "cake", "berries"};
static const char *const moods[] = {"happy", "brave", "curious", "quiet", "clever", "kind"};
static const char *const spots[] = {"under a stone", "behind a tree", "in the tall grass", "by the river", "on the roof", "in a box"};

static const char *const stage_open[] = {
    "Once upon a time there was a {mood} girl named {girl}.", "Once upon a time there was a {mood} boy named {boy}.",
    "There once lived a {mood} child near the {place}, and the name of the child was {hero}.",
    "One morning {hero} woke up early and looked out of the window."};
static const char *const stage_love[] = {
    "{Hero} had a {thing} and took it everywhere.", "More than anything {hero} loved {his} {thing}.",
    "For {his} birthday {he} had got a {thing}.", "{Hero} liked to play with {his} {thing} in the {place}."};
static const char *const stage_loss[] = {
    "One day {he} went to the {place}, but the {thing} was gone.", "But the wind came and took the {thing} away.",
    "In the afternoon {he} could not find the {thing}.", "Then it began to rain, and {hero} lost {his} {thing}."};
static const char *const stage_sad[] = {
    "{Hero} was very sad and began to cry.", "\"Oh no!\" said {hero}. \"Where is my {thing}?\"",
    "{He} looked here and there, but {he} found nothing.", "{He} sat down and did not know what to do."};
static const char *const stage_meet[] = {
    "Just then a {friend} came along the path.", "A little {friend} heard {him} and came closer.",
    "In the {place} {he} met a {friend}.", "A {friend} looked up and asked, \"Why are you so sad, {hero}?\""};
static const char *const stage_ask[] = {
    "\"I have lost my {thing},\" said {hero}. \"Can you help me?\"", "\"I can help you,\" said the {friend}.",
    "\"Do not cry,\" said the {friend}. \"We will find it.\"", "{Hero} gave the {friend} some {food}, and they looked together."};
static const char *const stage_find[] = {
    "They looked all day and found the {thing} {spot}.", "The {friend} was clever and saw the {thing} {spot}.",
    "At last they saw something {spot}. It was the {thing}!", "And there it was, {spot}: the {thing}."};
static const char *const stage_end[] = {
    "{Hero} was so happy that {he} danced with the {friend}.", "\"Thank you,\" said {hero}, and they ate {food} together.",
    "From that day on {hero} and the {friend} were best friends.", "{Hero} took the {thing} home and slept well that night.",
    "They shared the {food}, and {hero} was never alone again."};

typedef struct stage { const char *const *templates; int n; } stage;
static const stage stages[] = {
    {stage_open, COUNT(stage_open)}, {stage_love, COUNT(stage_love)}, {stage_loss, COUNT(stage_loss)}, {stage_sad, COUNT(stage_sad)},
    {stage_meet, COUNT(stage_meet)}, {stage_ask, COUNT(stage_ask)}, {stage_find, COUNT(stage_find)}, {stage_end, COUNT(stage_end)}};

static uint64_t random_state;

/* 0 .. n-1 by splitmix64. */
static int draw(int n)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int)((z ^ (z >> 31)) >> 33) % n;
}

typedef struct cast { const char *hero, *he, *his, *him, *friend, *place, *thing, *food, *mood, *spot; } cast;

static const char *word_for(const cast *c, const char *slot, size_t n)
{
    const struct { const char *slot, *word; } words[] = {
        {"hero", c->hero}, {"girl", c->hero}, {"boy", c->hero}, {"he", c->he}, {"his", c->his}, {"him", c->him}, {"friend", c->friend},
        {"place", c->place}, {"thing", c->thing}, {"food", c->food}, {"mood", c->mood}, {"spot", c->spot}};
    for (int i = 0; i < COUNT(words); i++)
        if (strlen(words[i].slot) == n && strncasecmp(words[i].slot, slot, n) == 0)
            return words[i].word;
    return "?";
}

/* Prints the template as the inside of a JSON string. */
static void print_sentence(const cast *c, const char *at)
{
    while (*at) {
        if (*at == '{') {
            size_t n = strcspn(++at, "}");
            const char *word = word_for(c, at, n);
            printf("%c%s", isupper((unsigned char)*at) ? toupper((unsigned char)word[0]) : word[0], word + 1);
            at += n + 1;
        } else {
            printf(*at == '"' ? "\\%c" : "%c", *at);
            at++;
        }
    }
}

static void print_story(void)
{
    int open = draw(COUNT(stage_open)), girl = open == 0 || (open > 1 && draw(2));
    cast c = {.hero = girl ? girls[draw(COUNT(girls))] : boys[draw(COUNT(boys))], .he = girl ? "she" : "he",
              .his = girl ? "her" : "his", .him = girl ? "her" : "him", .friend = friends[draw(COUNT(friends))],
              .place = places[draw(COUNT(places))], .thing = things[draw(COUNT(things))], .food = foods[draw(COUNT(foods))],
              .mood = moods[draw(COUNT(moods))], .spot = spots[draw(COUNT(spots))]};
    printf("{\"text\": \"");
    print_sentence(&c, stage_open[open]);
    for (int i = 1; i < COUNT(stages); i++) {
        printf(" ");
        print_sentence(&c, stages[i].templates[draw(stages[i].n)]);
    }
    printf("\"}\n");
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    if (count <= 0) {
        fprintf(stderr, "usage: stories COUNT [SEED] > stories.jsonl\n");
        return 2;
    }
    random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    while (count--)
        print_story();
    return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
