import { Button, type ButtonProps, Group, Modal, type ModalProps, Stack } from '@mantine/core';
import { type FormEvent, type ReactNode, useEffect, useState } from 'react';
import { FaultNotice } from './FaultNotice.tsx';
import { focusInvalid } from './focus-invalid.ts';
import { useUnsaved } from './unsaved.ts';

type End = {
  /** The text of the button that acts. */
  act: ReactNode;
  /** The call that the button starts. Its error is shown above the buttons. */
  attempt: { isPending: boolean; isError: boolean; error: unknown };
  onClose: () => void;
  cancel?: string;
  /** Props of the button that acts. */
  button?: ButtonProps;
};

/**
 * The end of a dialog: the error, and the buttons that close it and that act. Without `onAct`, the button submits the
 * form around it; with it, the focus is first on the button that closes.
 */
export function DialogEnd({
  act,
  attempt,
  onClose,
  cancel = 'Cancel',
  button,
  onAct,
}: End & { onAct?: () => void }) {
  return (
    <>
      {attempt.isError && <FaultNotice error={attempt.error} />}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} {...(onAct && { 'data-autofocus': true })}>
          {cancel}
        </Button>
        <Button
          {...(onAct === undefined ? { type: 'submit' as const } : { onClick: onAct })}
          loading={attempt.isPending}
          {...button}
        >
          {act}
        </Button>
      </Group>
    </>
  );
}

/**
 * A dialog. The focus is first on the element with `data-autofocus`, else on the first field; without a field, on the button
 * that closes.
 */
export function Dialog({ children, ...props }: ModalProps) {
  return (
    <Modal {...props}>
      <div ref={markFirstField}>{children}</div>
    </Modal>
  );
}

function markFirstField(body: HTMLElement | null): void {
  if (body === null || body.querySelector('[data-autofocus]') !== null) return;
  body
    .querySelector(':is(input, select, textarea):not([type=hidden], :disabled)')
    ?.setAttribute('data-autofocus', 'true');
}

/**
 * A dialog with a form: its fields, and the buttons that close and submit it. A field with an error gets the focus. While
 * `isDirty`, the user is asked before the dialog closes. Then the focus returns to the element that had it before.
 */
export function FormDialog({
  title,
  size = 'md',
  isDirty,
  onSubmit,
  children,
  ...end
}: End & {
  title: string;
  size?: NonNullable<ModalProps['size']>;
  isDirty: boolean;
  onSubmit: (event?: FormEvent<HTMLFormElement>) => void;
  children: ReactNode;
}) {
  const { error, isPending } = end.attempt;
  const leave = useUnsaved(isDirty && !isPending);
  const onClose = () => leave(end.onClose);
  const [opener] = useState(() => document.activeElement);
  useEffect(
    () => () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus({ preventScroll: true });
    },
    [opener],
  );
  useEffect(() => {
    if (error) focusInvalid();
  }, [error]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    onSubmit(event);
    focusInvalid();
  };
  return (
    <Dialog opened onClose={onClose} size={size} title={title}>
      <form onSubmit={submit}>
        <Stack>
          {children}
          <DialogEnd {...end} onClose={onClose} />
        </Stack>
      </form>
    </Dialog>
  );
}
