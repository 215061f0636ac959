/* domain.h - where a problem is solved: a box without its holes, which are boxes, too; and the faces of both.
 *
 * Points are drawn in the whole box and on whole faces. Those in holes, and those of faces that are not on the domain's boundary, have the
 * weight 0, so that integrals keep their exact volumes and areas.
 */
#ifndef PT_RITZ_DOMAIN_H
#define PT_RITZ_DOMAIN_H

#include "protrain_ritz.h"

typedef struct domain_face {
    int64_t axis;
    double at;                    /* the coordinate along the axis */
    const double *lower, *upper;  /* of the box or the hole: the other coordinates */
    bool above;                   /* the domain lies above it along the axis */
    double number;                /* the variable `face`: j or -j for the box's upper or lower side along xj; of hole k, k d + j */
} domain_face;

int64_t domain_faces(const pt_ritz_problem *problem);
domain_face domain_face_of(const pt_ritz_problem *problem, int64_t face);
pt_ritz_boundary domain_boundary(const pt_ritz_problem *problem, int64_t face);
bool domain_has_boundary(const pt_ritz_problem *problem, pt_ritz_boundary which);
/* Whether x is in no hole. */
bool domain_holds(const pt_ritz_problem *problem, const double *x);
/* Whether a point x of a face is on the domain's boundary. */
bool domain_face_holds(const pt_ritz_problem *problem, const domain_face *f, const double *x);
double domain_box_volume(const pt_ritz_problem *problem);
double domain_volume(const pt_ritz_problem *problem);

#endif
