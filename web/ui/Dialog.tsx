import { Button, type ButtonProps, Group, Modal, type ModalProps, Stack } from '@mantine/core';
import {
  createContext,
  type FormEvent,
  type ReactNode,
  type SyntheticEvent,
  useContext,
  useEffect,
  useState,
} from 'react';
import { FaultNotice } from './FaultNotice.tsx';
import { focusInvalid } from './focus-invalid.ts';
import { returnFocus } from './return-focus.ts';
import { useUnsaved } from './unsaved.ts';
import { useFocusIfLost } from './use-focus-if-lost.ts';

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

/** Closes the dialog around it, after a question if it has unsaved input. */
const LeaveContext = createContext((close: () => void) => close());

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
  const leave = useContext(LeaveContext);
  // The button is disabled during the call.
  const buttons = useFocusIfLost<HTMLDivElement>(attempt.isPending);
  return (
    <>
      {attempt.isError && <FaultNotice error={attempt.error} />}
      <Group justify="flex-end" ref={buttons} tabIndex={-1}>
        <Button variant="default" onClick={() => leave(onClose)} {...(onAct && { 'data-autofocus': true })}>
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
 * that closes. The user is asked before input is lost: while `isDirty`, or without it, while a field has another value than
 * before the user changed it. If it is rendered only while it is open, the focus then returns to the element that had it before,
 * or to the page if that is gone.
 */
export function Dialog({ children, isDirty, ...props }: ModalProps & { isDirty?: boolean | undefined }) {
  const { isChanged, ...handlers } = useChanged();
  const [opener] = useState(() => props.opened && document.activeElement);
  useEffect(
    () => () => {
      if (opener !== false) returnFocus(opener);
    },
    [opener],
  );
  const leave = useUnsaved(isDirty ?? isChanged);
  return (
    <Modal {...props} {...handlers} onClose={() => leave(props.onClose)}>
      <LeaveContext value={leave}>
        <div ref={markFirstField}>{children}</div>
      </LeaveContext>
    </Modal>
  );
}

/**
 * Finds out whether the user has typed in a field of the dialog with these handlers, or made a choice in its form. Choices
 * outside a form take effect at once.
 */
function useChanged() {
  const [before] = useState(() => new Map<HTMLInputElement, string | boolean>());
  const remember = ({ currentTarget }: SyntheticEvent) => {
    for (const field of currentTarget.querySelectorAll<HTMLInputElement>('form :is(input, select, textarea)'))
      if (!before.has(field)) before.set(field, choiceOf(field));
  };
  return {
    onKeyDownCapture: remember,
    onPointerDownCapture: remember,
    onInput: ({ target }: SyntheticEvent) => {
      const field = target as HTMLInputElement;
      // React sets the default to the value that it has rendered last: at the first input, the value before it.
      if (!isTick(field) && !before.has(field)) before.set(field, field.defaultValue);
    },
    isChanged: () => [...before].some(([field, value]) => field.isConnected && choiceOf(field) !== value),
  };
}

const isTick = ({ type }: HTMLInputElement) => type === 'checkbox' || type === 'radio';
const choiceOf = (field: HTMLInputElement) => (isTick(field) ? field.checked : field.value);

function markFirstField(body: HTMLElement | null): void {
  if (body === null || body.querySelector('[data-autofocus]') !== null) return;
  body
    .querySelector(':is(input, select, textarea):not([type=hidden], :disabled)')
    ?.setAttribute('data-autofocus', 'true');
}

/**
 * A dialog with a form: its fields, and the buttons that close and submit it. A field with an error gets the focus.
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
  isDirty?: boolean;
  onSubmit: (event?: FormEvent<HTMLFormElement>) => void;
  children: ReactNode;
}) {
  const { error } = end.attempt;
  useEffect(() => {
    if (error) focusInvalid();
  }, [error]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    onSubmit(event);
    focusInvalid();
  };
  return (
    <Dialog opened onClose={end.onClose} size={size} title={title} isDirty={isDirty}>
      <form onSubmit={submit}>
        <Stack>
          {children}
          <DialogEnd {...end} />
        </Stack>
      </form>
    </Dialog>
  );
}
