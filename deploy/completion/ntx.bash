# Completion of ntx in bash. `ntx complete` knows what may follow (client/commands/complete.h).
_ntx() {
    local words=() word cur line value more= files= IFS=$' \t\n'
    # bash takes ':' and '=' for words of their own: put them together again
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [ ${#words[@]} -gt 0 ] && { [[ $word == [:=]* ]] || [[ ${words[-1]} == *[:=] ]]; }; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    cur=${words[-1]-}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :more) more=yes ;;
        :files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${cur#--*=}"); files=yes ;;
        :gguf)
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur"; compgen -f -X '!*.[gG][gG][uU][fF]' -- "$cur")
            files=yes
            ;;
        :dirs) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "${cur#--*=}"); files=yes ;;
        *)
            value=${line%%$'\t'*}
            # what bash completes begins after the last ':' or '='
            [[ $cur != *[:=]* ]] || value=${value#"${cur%"${cur##*[:=]}"}"}
            COMPREPLY+=("$value")
            ;;
        esac
    done < <("${COMP_WORDS[0]}" complete -- "${words[@]}" 2>/dev/null)
    [ -z "$files" ] || compopt -o filenames 2>/dev/null
    [ -z "$more" ] || compopt -o nospace 2>/dev/null
}
complete -F _ntx ntx
