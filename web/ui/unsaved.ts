import { createContext, useContext, useEffect, useId } from 'react';

type UnsavedInput = {
  /** The forms with unsaved input. */
  forms: Set<string>;
  /** The user is asked whether to discard the input. */
  isAsking: boolean;
  ask: (form: string, close: () => void) => void;
  keepEditing: () => void;
};

export const UnsavedContext = createContext<UnsavedInput>({
  forms: new Set(),
  isAsking: false,
  ask: (_form, close) => close(),
  keepEditing: () => {},
});

/**
 * While `isUnsaved`, the user is asked before the page is left. Returns a function that closes the form, and asks before if
 * it has unsaved input. `isUnsaved` has to be false while the input is being saved: after that, the form may close and the
 * page may change.
 */
export function useUnsaved(isUnsaved: boolean): (close: () => void) => void {
  const { forms, isAsking, ask, keepEditing } = useContext(UnsavedContext);
  const form = useId();
  useEffect(() => {
    if (!isUnsaved) return;
    forms.add(form);
    return () => void forms.delete(form);
  }, [forms, form, isUnsaved]);
  return (close) => {
    // Escape reaches the dialog below, too.
    if (isAsking) keepEditing();
    else if (isUnsaved) ask(form, close);
    else close();
  };
}
