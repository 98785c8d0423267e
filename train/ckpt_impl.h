/* Names that the writing and the reading half of checkpoints share.
 *
 * Thread: any (constants). */
#ifndef RU_TRAIN_CKPT_IMPL_H
#define RU_TRAIN_CKPT_IMPL_H

#define RUI_CKPT_NAME "%09lld" /* of the step: sorts by name */
#define RUI_CKPT_TEMP ".tmp"

#endif
