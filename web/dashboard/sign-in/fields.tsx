import { PasswordInput, type PasswordInputProps, TextInput, type TextInputProps } from '@mantine/core';

/** The fields that the pages before sign-in share, named so that a password manager knows them. */
export const rules = {
  email: (value: string) => (/^\S+@\S+$/.test(value) ? null : 'An e-mail address, please'),
  password: (value: string) => (value.length >= 12 ? null : 'At least 12 characters'),
};

const showPassword = { 'aria-label': 'Show the password', 'aria-hidden': false };

export function Name(props: TextInputProps) {
  return <TextInput label="Name" autoComplete="name" required {...props} />;
}

export function Email(props: TextInputProps) {
  return <TextInput label="E-mail" type="email" autoComplete="username" required {...props} />;
}

export function Password(props: PasswordInputProps) {
  return (
    <PasswordInput
      label="Password"
      autoComplete="current-password"
      required
      visibilityToggleButtonProps={showPassword}
      {...props}
    />
  );
}

export function NewPassword(props: PasswordInputProps) {
  return (
    <PasswordInput
      label="Password"
      description="At least 12 characters"
      autoComplete="new-password"
      required
      visibilityToggleButtonProps={showPassword}
      {...props}
    />
  );
}
